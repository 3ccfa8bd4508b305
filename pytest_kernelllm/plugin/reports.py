"""The files that a run writes at its end: ``--kernelllm-report`` and ``--kernelllm-html``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelllm_judge.core.records import Environment
from kernelllm_judge.core.spans import Span
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.usage import Usage


def check_reports(config: pytest.Config) -> None:
    """Checks before anything runs that the HTML report can be made.

    Raises:
        pytest.UsageError: it cannot be made; one sentence.
    """
    if config.getoption("kernelllm_html"):
        from pytest_kernelllm.report.html.page import HtmlError, check_html

        try:
            check_html()
        except HtmlError as error:
            raise pytest.UsageError(str(error)) from None


def write_reports(
    terminal: Any,
    config: pytest.Config,
    environment: Environment,
    outcomes: Sequence[Outcome],
    patches: Mapping[str, str],
    usage: Usage | None = None,
    spans: Sequence[Span] = (),
    stopped: str = "",
) -> None:
    """Writes the reports that the command line asks for; the JSON report only where something was judged, or was to be.

    Args:
        terminal: pytest's ``TerminalReporter``, which shows why a file could not be written.
        usage: how busy the slots were; None where nothing was judged.
        spans: what all processes did.
        stopped: why the run ended before everything was tried; empty if it did not.
    """
    file, html = config.getoption("kernelllm_report"), config.getoption("kernelllm_html")
    file = file if outcomes or stopped else None
    if not html and not file:
        return
    from pytest_kernelllm.report.json import build_report, write_report

    report = build_report(environment, outcomes, patches, usage, spans, root=config.rootpath, stopped=stopped)
    try:
        if file:
            write_report(Path(file), report)
        if html:
            from pytest_kernelllm.report.html.page import write_page

            write_page(Path(html), report)
    except OSError as error:
        terminal.write_line(f"The report was not written: {error}.", yellow=True)
