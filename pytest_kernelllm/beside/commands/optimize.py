"""``kernelllm optimize``: from a model to what it gains."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.commands.common import (
    OK,
    CommandError,
    add_generator_options,
    add_judge_options,
    settings_of,
)
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.commands.stages import stages
from pytest_kernelllm.core.words import command, say
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.report.fitted import terminal_width

HELP = (
    "Make a whole model faster than torch.compile: cut its graph into regions, have kernels for them written and judged, "
    "and choose by measuring the model how it runs. A second run continues the first."
)

_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "model",
        metavar="MODULE:FACTORY",
        help="a function that returns (model, example), as for `kernelllm scan --model`; also FILE.py:FACTORY",
    )
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=600.0,
        metavar="TIME",
        help="time for all of it: 90s, 10min (default 10min)",
    )
    parser.add_argument(
        "--mode",
        choices=["inference"],
        default="inference",
        help="what the model is used for (default inference)",
    )
    parser.add_argument(
        "--write",
        metavar="FILE.py",
        type=output_file,
        help="write how the model runs fastest as a file with `optimize(model)`, with its kernels beside it",
    )
    parser.add_argument("--overwrite", action="store_true", help="let --write replace a file")
    parser.add_argument(
        "--regions",
        metavar="FILE.py",
        type=output_file,
        help="where regions are written as modules (default: regions/ in the store)",
    )
    parser.add_argument("--html", metavar="FILE", type=output_file, help="write the answer as a page")
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write the answer as JSON; - is standard output"
    )
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="also try weights as constants, which the compiled code does not see change",
    )
    parser.add_argument(
        "--no-max-autotune",
        dest="max_autotune",
        action="store_false",
        help="leave torch.compile's max-autotune-no-cudagraphs out of the comparison",
    )
    parser.add_argument("-k", "--samples", type=int, metavar="K", help="candidates per region (default 2)")
    add_generator_options(parser)
    add_judge_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if the model was optimized, however much it gained."""
    begun = time.monotonic()
    _check(options)
    try:
        from pytest_kernelllm.beside.ranking.errors import RankError
        from pytest_kernelllm.beside.ranking.factory import load_factory
        from pytest_kernelllm.beside.whole.optimize import Request, optimize
        from pytest_kernelllm.beside.whole.placed_file import write_placed
        from pytest_kernelllm.beside.whole.shown import shown, write_page
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CommandError("optimize needs torch; run `pip install 'pytest-kernelllm[torch]'`.") from None

    project = project_here()
    # What a kernel must beat is what stands there in a compiled model.
    options.baseline = options.baseline or "compile"
    options.samples = options.samples or 2
    settings = settings_of(options)
    try:
        # What the user's code prints must not get into the JSON.
        with contextlib.redirect_stdout(sys.stderr), stages("importing") as report:
            factory = load_factory(options.model, project.root, "optimize")
            request = Request(
                project.root,
                settings,
                Path(options.regions) if options.regions else None,
                max(options.budget - (time.monotonic() - begun), 1.0),
                options.freeze,
                options.max_autotune,
                report,
            )
            found = optimize(factory, request)
    except KeyboardInterrupt:
        say(f"to go on, run the same command again: {command('kernelllm', 'optimize', options.model)}.")
        raise
    except (RankError, GenerateError) as error:
        raise CommandError(str(error)) from None
    if options.json != "-":
        print(shown(found.answer, terminal_width(), sys.stdout.isatty()))
    if options.json:
        _write_json(options.json, json.dumps(found.answer.to_json(), indent=1, allow_nan=False))
    if options.html:
        write_page(Path(options.html), found.answer)
    if options.write:
        write_placed(Path(options.write), project.root, found.answer, found.kept)
        say(f"wrote {options.write}; `optimize(model)` in it makes the model run so.")
    return OK


def _check(options: argparse.Namespace) -> None:
    for name in ("write", "regions"):
        given = getattr(options, name)
        if given and Path(given).suffix != ".py":
            raise CommandError(f"--{name} takes a file that ends in .py, not {given}.")
    if options.write and Path(options.write).exists() and not options.overwrite:
        raise CommandError(f"{options.write} exists; name another file, or add --overwrite.")
    if options.html:
        from pytest_kernelllm.report.html.page import HtmlError, check_html

        try:
            check_html()
        except HtmlError as error:
            raise CommandError(str(error)) from None


def _write_json(out: str, text: str) -> None:
    if out == "-":
        print(text)
        return
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(text + "\n", encoding="utf-8")


def _seconds(text: str) -> float:
    """Returns the seconds of ``90s``, ``10min`` or ``1.5h``; a number alone is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip().lower())
    unit = _UNITS.get(found[2] or "s") if found else None
    if found is None or unit is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"takes a time such as 90s or 10min, not {text!r}")
    return float(found[1]) * unit
