"""Writes what a verify job hands over: a folder with the report and the patches of this run."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_kernelllm.core.git import folder_in_repository
from pytest_kernelllm.report.markdown import job_summary
from pytest_kernelllm.report.read import Report, read_report
from pytest_kernelllm.report.sarif import write_sarif
from pytest_kernelllm.suggest.github.annotations import all_annotations
from pytest_kernelllm.suggest.github.artifact import PATCHES, REPORT, SARIF
from pytest_kernelllm.suggest.github.runner import ActionsRunner
from pytest_kernelllm.suggest.patch import COMBINED


def pack(report: Path, folder: Path, base: Path = Path()) -> Report:
    """Copies the report and its patches into ``folder``, replacing older ones, and writes its problems as SARIF.

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
    write_sarif(folder / SARIF, found, folder_in_repository(base))
    return found


def publish(report: Report, root: Path, runner: ActionsRunner) -> None:
    """Writes the job's summary and annotates the targets."""
    runner.summary(job_summary(report))
    for line in all_annotations(report, folder_in_repository(root)):
        print(line, flush=True)
