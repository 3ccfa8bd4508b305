"""The ``kernelllm`` command: finds the subcommand and runs it."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise

from kernelllm_judge.core.errors import ConfigError
from pytest_kernelllm.commands.common import UNJUDGED, CommandError
from pytest_kernelllm.core.interruption import terminable
from pytest_kernelllm.core.words import say

WAY, BESIDE = "pytest_kernelllm.commands", "pytest_kernelllm.beside.commands"
COMMANDS = {
    "scan": BESIDE,
    "optimize": BESIDE,
    "generate": WAY,
    "repl": BESIDE,
    "verify": BESIDE,
    "bench": BESIDE,
    "leaderboard": BESIDE,
    "apply": WAY,
    "revert": WAY,
    "suggest": WAY,
    "report": WAY,
    "export": BESIDE,
    "provenance": BESIDE,
    "store": WAY,
    "explain": WAY,
    "doctor": WAY,
}
"""Each is a module of that package."""

CLOSED_PIPE = 128 + signal.SIGPIPE
"""The exit code after the reader of the output has closed it, as a shell gives it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    given = sys.argv[1:] if argv is None else argv
    parser = _parser(given)
    if not given:
        parser.print_help()
        return 0
    if any(not text and not before.startswith("-") for before, text in pairwise(given)):
        parser.error("an argument is empty: name a file, a folder, a target or a hash")
    options = parser.parse_args(given)
    try:
        with terminable():
            code = int(options.run(options))
        sys.stdout.flush()
        return code
    except (CommandError, ConfigError) as error:
        say(error)
        return UNJUDGED
    except KeyboardInterrupt:
        say("interrupted; what was finished is kept.")
        return 130
    except BrokenPipeError:  # of `kernelllm … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor does Python complain at its end
        return CLOSED_PIPE
    except OSError as error:  # a full disk, a folder that is not there
        say(error)
        return UNJUDGED
    except BaseException:
        # Also a user's sys.exit(): Python's own exit code for it would be that of a verdict.
        traceback.print_exc()
        say("this should not have happened; please report it.")
        return UNJUDGED


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser for a command line: with the command that it names, or for lack of one with all of them."""
    parser = argparse.ArgumentParser(
        "kernelllm", description="Triton kernels for marked PyTorch modules: written, proven, adopted."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in [name for name in argv[:1] if name in COMMANDS] or COMMANDS:
        module = importlib.import_module(f"{COMMANDS[name]}.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add(command)
        command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
