"""Writes annotations, outputs and the job's summary for the runner of a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pytest_kernelllm.suggest.github.annotations import annotation
from pytest_kernelllm.suggest.github.errors import shown

Level = Literal["notice", "warning", "error"]


class ActionsRunner:
    """The runner of this step; without one (on a developer's machine) outputs and summaries are dropped."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """``environ`` contains ``GITHUB_OUTPUT`` and ``GITHUB_STEP_SUMMARY``."""
        self._output = environ.get("GITHUB_OUTPUT", "")
        self._summary = environ.get("GITHUB_STEP_SUMMARY", "")

    def annotate(self, level: Level, message: str) -> None:
        """Prints an annotation for the job."""
        print(annotation(level, message), flush=True)

    def output(self, name: str, value: str) -> None:
        """Sets one of the step's outputs to one line of text."""
        if self._output:
            with Path(self._output).open("a", encoding="utf-8") as file:
                file.write(f"{name}={shown(value)}\n")

    def summary(self, text: str) -> None:
        """Appends Markdown to the job's summary."""
        if self._summary:
            with Path(self._summary).open("a", encoding="utf-8") as file:
                file.write(text)
