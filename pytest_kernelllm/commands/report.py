"""``kernelllm report``: turns a stored report into what people and other programs read."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.commands.common import OK, CommandError
from pytest_kernelllm.core.git import folder_in_repository
from pytest_kernelllm.core.words import say
from pytest_kernelllm.report.benchmark import left_out, write_benchmarks
from pytest_kernelllm.report.html.page import HtmlError, check_html, write_page
from pytest_kernelllm.report.read import ReportError, read_report
from pytest_kernelllm.report.sarif import write_sarif
from pytest_kernelllm.report.timeline import write_timeline

HELP = "Turn a report that `pytest --kernelllm-report` wrote, such as that of a CI run, into a page, a timeline or SARIF."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("report", metavar="REPORT.json", help="file written by --kernelllm-report")
    parser.add_argument("--html", metavar="FILE", type=output_file, help="page to write (extra: html)")
    parser.add_argument(
        "--timeline",
        metavar="FILE",
        type=output_file,
        help="what every process did, and when: a page, or with .json a trace for https://ui.perfetto.dev",
    )
    parser.add_argument(
        "--sarif", metavar="FILE", type=output_file, help="rejected and stale kernels, for code scanning"
    )
    parser.add_argument(
        "--benchmark-json",
        metavar="FILE",
        type=output_file,
        help="what was timed, for `pytest-benchmark compare`",
    )


def run(options: argparse.Namespace) -> int:
    """Writes what is asked for; exit code 0."""
    if not (options.html or options.timeline or options.sarif or options.benchmark_json):
        raise CommandError("Name what to write: --html, --timeline, --sarif or --benchmark-json, and a FILE.")
    file = Path(options.report)
    try:
        if options.html:
            check_html()
        report = read_report(file.read_bytes())
    except HtmlError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{file} cannot be read ({error.strerror}); name a report in JSON.") from None
    except ReportError as error:
        raise CommandError(f"{file} is not a report: {error}.") from None
    if options.html:
        write_page(Path(options.html), report)
    if options.sarif:
        write_sarif(Path(options.sarif), report, folder_in_repository(Path()))
    if options.benchmark_json and (left := left_out(write_benchmarks(Path(options.benchmark_json), report))):
        say(left)
    if options.timeline and not report.spans:
        raise CommandError(f"{file} does not say what its run did; an earlier version wrote it.")
    if options.timeline:
        write_timeline(Path(options.timeline), report.spans)
    return OK
