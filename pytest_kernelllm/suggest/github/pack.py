"""Writes what a verify job hands over: a folder with the report and the patches of this run."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_kernelllm.core.git import work_tree
from pytest_kernelllm.report.markdown import job_summary
from pytest_kernelllm.report.read import Report, read_report
from pytest_kernelllm.suggest.github.artifact import PATCHES, REPORT
from pytest_kernelllm.suggest.github.runner import ActionsRunner
from pytest_kernelllm.suggest.patch import COMBINED

MOST_ANNOTATIONS = 10
"""Per level and step; GitHub drops further ones."""


def pack(report: Path, folder: Path, base: Path = Path()) -> Report:
    """Copies the report and its patches into ``folder``, replacing older ones.

    Only the patches that the report names are copied, and the combined one if there are several; patches that
    older runs left in the store are not. The report names them relative to ``base``.

    Raises:
        ReportError: the file is not a report.
        OSError: the report or one of its patches cannot be read.
    """
    found = read_report(report.read_bytes())
    if (folder / PATCHES).exists():
        shutil.rmtree(folder / PATCHES)
    (folder / PATCHES).mkdir(parents=True)
    shutil.copyfile(report, folder / REPORT)
    patches = [base / target.patch for target in found.targets if target.patch is not None]
    if len(patches) > 1:
        patches.append(patches[0].with_name(f"{COMBINED}.patch"))
    for patch in patches:
        shutil.copyfile(patch, folder / PATCHES / patch.name)
    return found


def publish(report: Report, root: Path, runner: ActionsRunner) -> None:
    """Writes the job's summary and annotates the targets."""
    runner.summary(job_summary(report))
    top = work_tree(root) or root.absolute()
    prefix = root.absolute().relative_to(top)
    count = {"notice": 0, "error": 0}
    for entry in report.targets:
        target, winner = entry.target, entry.winner
        file = (prefix / target.path).as_posix()
        if entry.failure:
            count["error"] += 1
            if count["error"] <= MOST_ANNOTATIONS:
                text = f"{target.name}: the adopted kernel {': '.join(entry.failure)}"
                runner.annotate("error", text, file=file, line=target.line)
        elif winner is not None and winner.verdict is not None and entry.patch is not None:
            eager, compiled = winner.verdict.speedup, winner.verdict.speedup_compiled
            gain = f", {eager.value:.3g} times as fast as eager" if eager else ""
            gain += f", {compiled.value:.3g} times as fast as torch.compile" if compiled else ""
            count["notice"] += 1
            if count["notice"] <= MOST_ANNOTATIONS:
                runner.annotate(
                    "notice", f"{target.name}: a verified kernel{gain}", file=file, line=target.line
                )
