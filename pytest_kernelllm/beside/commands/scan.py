"""``kernelllm scan``: lists the targets in files and folders, or ranks the modules of a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.commands.common import OK, REJECTED, CommandError
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.commands.stages import stages
from pytest_kernelllm.config.options import options as settings_options
from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.core.words import command, say
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.report.fitted import terminal_width

HELP = (
    "List the targets found in files and folders, without importing them; or with --model, rank the modules "
    "of a model by what a kernel could save."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("paths", nargs="*", default=["."], help="files and folders (default: here)")
    parser.add_argument(
        "--kernelbench", action="store_true", help="include files in KernelBench's form (Model, get_inputs)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, one target per line; with --model one object"
    )
    ranking = parser.add_argument_group("ranking a model")
    ranking.add_argument(
        "--model",
        metavar="MODULE:FACTORY",
        help="call this function, which returns (model, example), and rank the model's modules; also FILE.py:FACTORY",
    )
    ranking.add_argument(
        "--write", metavar="FILE.py", type=output_file, help="write markers for the modules that are worth it"
    )
    ranking.add_argument("--overwrite", action="store_true", help="let --write replace a file")
    ranking.add_argument(
        "--count", action="store_true", help="count bytes and FLOPs and predict times, even if there is a GPU"
    )
    arch = settings_options()["arch"]
    ranking.add_argument(
        "--arch", metavar=arch.metavar, help="GPU architecture to predict for (default sm_90)"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if there is a target, or a module worth a kernel, else 1."""
    if options.model:
        return _rank(options)
    if options.write:
        raise CommandError("--write needs --model MODULE:FACTORY.")
    paths = [Path(path).resolve() for path in options.paths]
    if missing := [given for given in options.paths if not Path(given).exists()]:
        raise CommandError(f"There is no file or folder {missing[0]}.")
    found = scan(paths, project_here().root, kernelbench=options.kernelbench)
    for target in found.targets:
        adopted = f"  adopted {target.kernel}" if target.kernel else ""
        plain = f"{target.id}  line {target.line}  {target.source_hash[:12]}{adopted}"
        print(json.dumps(target.to_json()) if options.json else plain)
    say(*found.problems)
    if not found.targets and not found.problems:
        say(f"no @triton_candidate in {' '.join(options.paths)}")
    return OK if found.targets else REJECTED


def _rank(options: argparse.Namespace) -> int:
    if options.paths != ["."] or options.kernelbench:
        raise CommandError("--model ranks one model; leave the files and --kernelbench out.")
    if options.write and Path(options.write).exists() and not options.overwrite:
        raise CommandError(f"{options.write} exists; name another file, or add --overwrite.")
    if options.write and Path(options.write).suffix != ".py":
        raise CommandError(f"--write takes a file that ends in .py, not {options.write}.")
    try:
        from pytest_kernelllm.beside.ranking.errors import RankError
        from pytest_kernelllm.beside.ranking.factory import load_factory
        from pytest_kernelllm.beside.ranking.model import rank
        from pytest_kernelllm.beside.ranking.result import render
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CommandError("--model needs torch; run `pip install 'pytest-kernelllm[torch]'`.") from None

    project = project_here()
    settings = load_settings(project.root, {"arch": options.arch})
    try:
        # What the user's code prints must not get into the JSON.
        with contextlib.redirect_stdout(sys.stderr), stages("importing") as report:
            ranking = rank(
                load_factory(options.model, project.root),
                store=project.store,
                arch=settings.arch,
                count=options.count,
                report=report,
            )
    except RankError as error:
        raise CommandError(str(error)) from None
    if options.json:
        print(json.dumps(ranking.to_json()))
    else:
        print(render(ranking, terminal_width(), sys.stdout.isatty()))
    if options.write:
        ranking.write_markers(options.write, overwrite=options.overwrite)
        say(f"wrote {options.write}; run {command('pytest', '--kernelllm', options.write)}.")
    return OK if ranking.worth else REJECTED
