"""Annotations of GitHub Actions: lines of a log that show at a line of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pytest_kernelllm.report.problems import problems
from pytest_kernelllm.report.read import Report, ReportedTarget
from pytest_kernelllm.suggest.github.errors import shown

MOST_ANNOTATIONS = 10
"""Per level and step; GitHub drops further ones."""


def all_annotations(report: Report, folder: PurePosixPath) -> Iterator[str]:
    """Yields a line for each error, each warning and each kernel that a patch adopts, at its marker.

    Args:
        folder: the project's, in its repository.
    """
    left = dict.fromkeys(("error", "warning", "notice"), MOST_ANNOTATIONS)
    found = [(problem.level, problem.rule, problem.text, problem.target) for problem in problems(report)]
    offered = [("notice", "", text, entry.target) for entry in report.targets if (text := _offered(entry))]
    for level, rule, text, target in (*found, *offered):
        if level == "note":  # a rejected candidate harms nobody
            continue
        left[level] -= 1
        if left[level] >= 0:
            title = f"kernelllm: {rule}" if rule else "kernelllm"
            yield annotation(level, text, title, file=(folder / target.path).as_posix(), line=target.line)


def annotation(level: str, message: str, title: str = "kernelllm", *, file: str = "", line: int = 0) -> str:
    """Returns the line that annotates a line of a file, or the job."""
    where = f"file={_property(file)},line={line}," if file else ""
    return f"::{level} {where}title={_property(title)}::{_data(shown(message))}"


def _offered(entry: ReportedTarget) -> str:
    winner = entry.winner
    if winner is None or winner.verdict is None or entry.patch is None:
        return ""
    eager, compiled = winner.verdict.speedup, winner.verdict.speedup_compiled
    gain = f", {eager.value:.3g} times as fast as eager" if eager else ""
    gain += f", {compiled.value:.3g} times as fast as torch.compile" if compiled else ""
    return f"{entry.target.name}: a verified kernel{gain}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(shown(text)).replace(":", "%3A").replace(",", "%2C")
