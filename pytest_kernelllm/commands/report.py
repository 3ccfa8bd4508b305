"""``kernelllm report``: shows a stored report as an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.commands.common import OK, CommandError
from pytest_kernelllm.report.html.page import HtmlError, check_html, write_page
from pytest_kernelllm.report.read import ReportError, read_report

HELP = "Make an HTML page from a report that `pytest --kernelllm-report` wrote, such as that of a CI run."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("report", metavar="REPORT.json", help="file written by --kernelllm-report")
    parser.add_argument(
        "--html", metavar="FILE", type=output_file, required=True, help="page to write (extra: html)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page; exit code 0."""
    file, page = Path(options.report), Path(options.html)
    try:
        check_html()
        report = read_report(file.read_bytes())
    except HtmlError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{file} cannot be read ({error.strerror}); name a report in JSON.") from None
    except ReportError as error:
        raise CommandError(f"{file} is not a report: {error}.") from None
    write_page(page, report)
    return OK
