"""What a run writes at its end: the files that its options name, and in GitHub Actions annotations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelllm_judge.core.records import Environment
from kernelllm_judge.core.spans import Span
from pytest_kernelllm.core.git import folder_in_repository
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
    *,
    annotate: bool = False,
) -> None:
    """Writes the reports that the command line asks for; for programs only where something was judged, or was to be.

    Args:
        terminal: pytest's ``TerminalReporter``, which shows why a file could not be written.
        usage: how busy the slots were; None where nothing was judged.
        spans: what all processes did.
        stopped: why the run ended before everything was tried; empty if it did not.
        annotate: whether markers are annotated in GitHub Actions.
    """
    chosen = {
        name: config.getoption(f"kernelllm_{name}") for name in ("report", "html", "sarif", "benchmark_json")
    }
    if not outcomes and not stopped:
        chosen = {"html": chosen["html"]}
    annotated = annotate and os.environ.get("GITHUB_ACTIONS") == "true"
    if not annotated and not any(chosen.values()):
        return
    from pytest_kernelllm.report.json import build_report, write_report

    report = build_report(environment, outcomes, patches, usage, spans, root=config.rootpath, stopped=stopped)
    if annotated:
        from pytest_kernelllm.suggest.github.annotations import all_annotations

        for line in all_annotations(report, folder_in_repository(config.rootpath)):
            terminal.write_line(line)
    try:
        if file := chosen.get("report"):
            write_report(Path(file), report)
        if file := chosen.get("sarif"):
            from pytest_kernelllm.report.sarif import write_sarif

            write_sarif(Path(file), report, folder_in_repository(config.rootpath))
        if file := chosen.get("benchmark_json"):
            from pytest_kernelllm.report.benchmark import left_out, write_benchmarks

            if left := left_out(write_benchmarks(Path(file), report, config.rootpath)):
                terminal.write_line(left, yellow=True)
        if file := chosen["html"]:
            from pytest_kernelllm.report.html.page import write_page

            write_page(Path(file), report)
    except OSError as error:
        terminal.write_line(f"The report was not written: {error}.", yellow=True)
