"""``kernelllm repl``: a conversation with the model."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_kernelllm.commands.common import (
    OK,
    CommandError,
    add_judge_options,
    add_model_options,
    settings_of,
)
from pytest_kernelllm.core.words import say
from pytest_kernelllm.generate.protocol import GenerateError

HELP = "Paste a module, watch the answer as it is generated, judge it, save it."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_model_options(parser)
    add_judge_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 at the end of the conversation."""
    from pytest_kernelllm.beside.commands.conversation import Repl, converse, piped_inputs, terminal_inputs
    from pytest_kernelllm.models.kernelllm import KernelLLM

    settings = settings_of(options)
    try:
        with KernelLLM(settings=settings, progress=say) as llm:
            if sys.stdin.isatty():
                print("Paste a module that defines Model, or type a prompt; an empty line ends it. :help")
                inputs = terminal_inputs(_state_folder() / "history")
            else:
                inputs = piped_inputs(sys.stdin)
            converse(Repl(llm, settings, sys.stdout), inputs)
    except GenerateError as error:
        raise CommandError(str(error)) from None
    return OK


def _state_folder() -> Path:
    """The folder for the program's state, by the XDG base directories."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kernelllm"
