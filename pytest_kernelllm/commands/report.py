"""``kernelllm report``: shows a stored report as an HTML page, or what its run did as a timeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.commands.common import OK, CommandError
from pytest_kernelllm.report.html.page import HtmlError, check_html, write_page
from pytest_kernelllm.report.read import ReportError, read_report
from pytest_kernelllm.report.timeline import write_timeline

HELP = "Make an HTML page or a timeline from a report that `pytest --kernelllm-report` wrote, such as that of a CI run."


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


def run(options: argparse.Namespace) -> int:
    """Writes what is asked for; exit code 0."""
    if not options.html and not options.timeline:
        raise CommandError("Name what to write: --html FILE or --timeline FILE.")
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
    if options.timeline and not report.spans:
        raise CommandError(f"{file} does not say what its run did; an earlier version wrote it.")
    if options.timeline:
        write_timeline(Path(options.timeline), report.spans)
    return OK
