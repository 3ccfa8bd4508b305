"""``kernelllm verify``: judges candidate files against reference files."""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from kernelllm_judge.core.records import Verdict
from pytest_kernelllm.beside.kernelbook.files import is_data_set
from pytest_kernelllm.beside.kernelbook.read import pairs
from pytest_kernelllm.beside.kernelbook.row import KernelBookError
from pytest_kernelllm.beside.verify.pairs import Judged, Pair, VerifyError, find_pairs, verify_all
from pytest_kernelllm.commands.common import (
    OK,
    REJECTED,
    UNJUDGED,
    CommandError,
    add_judge_options,
    settings_of,
)
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.words import say

HELP = (
    "Judge candidate files against references. "
    "Exit code: 0 all accepted, 1 some rejected, 2 some undecided or the run failed."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="REFERENCE CANDIDATE",
        help="reference.py in KernelBench's form or file.py::Class, then candidate.py",
    )
    parser.add_argument(
        "--pairs",
        metavar="DIR",
        help="judge every subfolder, which contains reference.py and candidate.py, "
        "or every row of a data set in KernelBook's form, FILE.jsonl or FILE.parquet",
    )
    parser.add_argument(
        "--min-speedup",
        dest="reject_below",
        metavar="X",
        type=float,
        default=0.0,
        help="reject below this speedup over the baseline (default: report only)",
    )
    add_judge_options(parser)
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=output_file,
        help="write the verdict as JSON, or JSON lines with --pairs; - is standard output",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if all were accepted, else 1 if all were decided, else 2."""
    for file in options.files:
        if not Path(file.partition("::")[0]).exists():
            raise CommandError(f"There is no file {file}.")
    if bool(options.pairs) == bool(options.files) or (options.files and len(options.files) != 2):
        raise CommandError("verify takes REFERENCE.py CANDIDATE.py, or --pairs DIR.")
    settings = settings_of(options)
    try:
        if options.pairs and is_data_set(Path(options.pairs)):
            return _rows(Path(options.pairs), settings, options)
        if options.pairs:
            return _many(find_pairs(Path(options.pairs)), settings, options)
        return _one(
            Pair(Path(options.files[1]).stem, options.files[0], Path(options.files[1])), settings, options
        )
    except (VerifyError, KernelBookError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or options.json} cannot be used ({error.strerror}).") from None


def _rows(file: Path, settings: Settings, options: argparse.Namespace) -> int:
    """Judges a data set's rows; one that is not in its form counts as undecided."""
    left_out: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        found = pairs(file, Path(folder), left_out.__setitem__)
        for number, reason in left_out.items():
            say(f"{file}, row {number}: {reason}.")
        if not found:
            raise CommandError(f"{file} has no row that can be judged.")
        judged = _many(found, settings, options)
    return UNJUDGED if left_out else judged


def _one(pair: Pair, settings: Settings, options: argparse.Namespace) -> int:
    judged: list[Judged] = []
    verify_all([pair], settings, judged.append, options.reject_below)
    verdict = judged[0].verdict
    text = json.dumps(verdict.to_json(), indent=1, allow_nan=False)
    if options.json == "-":
        print(text)
    else:
        _show(verdict)
        if options.json:
            Path(options.json).write_text(text + "\n", encoding="utf-8")
    return {"accepted": OK, "rejected": REJECTED, "inconclusive": UNJUDGED}[verdict.verdict]


def _show(verdict: Verdict) -> None:
    mapped = f"; {verdict.mapped}" if verdict.mapped else ""
    print(f"{verdict.verdict} ({verdict.stage})" + (f": {verdict.reason}" if verdict.reason else "") + mapped)
    if verdict.accepted and verdict.sizes_asked:
        print(f"  {verdict.sizes_asked}")
    if verdict.addresses:
        why = f" ({verdict.addresses.why})" if verdict.addresses.why else ""
        print(f"  addresses: {verdict.addresses.in_words()}{why}")
    for timing in verdict.timing:
        line = f"  {timing.name}: {timing.kernel.p50:.1f} µs"
        for name, time, s in (
            ("eager", timing.eager, timing.speedup),
            ("torch.compile", timing.compiled, timing.speedup_compiled),
        ):
            if time and s:
                line += f", {name} {time.p50:.1f} µs, {s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]"
        print(line + (f", {timing.note}" if timing.note else ""))


def _many(given: list[Pair], settings: Settings, options: argparse.Namespace) -> int:
    from pytest_kernelllm.report.progress import live_progress

    counts = {"accepted": 0, "rejected": 0, "inconclusive": 0}
    to_file = options.json and options.json != "-"
    with (
        Path(options.json).open("w", encoding="utf-8", buffering=1) if to_file else nullcontext() as file,
        live_progress(len(given)) as (_, advance),
    ):

        def done(judged: Judged) -> None:
            counts[judged.verdict.verdict] += 1
            print(judged.to_line() if options.json else judged.in_words(), file=file, flush=True)
            advance()

        verify_all(given, settings, done, options.reject_below)
    say(", ".join(f"{n} {name}" for name, n in counts.items()))
    return UNJUDGED if counts["inconclusive"] else REJECTED if counts["rejected"] else OK
