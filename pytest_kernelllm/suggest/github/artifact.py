"""Reads the folder that a verify job hands over, as untrusted input."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.report.read import Report, ReportError, read_report
from pytest_kernelllm.suggest.github.errors import SuggestionRefused
from pytest_kernelllm.suggest.patch import COMBINED

REPORT = "report.json"
PAGE = "report.html"
"""A page for people, which is never opened here."""
SARIF = "kernels.sarif"
"""For code scanning; never opened here, either."""
PATCHES = "patches"

MOST_FILES = 1000
LARGEST_FILE = 16 * 2**20
LARGEST_PATCH = 4 * 2**20
LARGEST_TOTAL = 64 * 2**20
"""Bytes of all files together."""

_BESIDE_PATCHES = (REPORT, PAGE, SARIF)
_PATCH_NAME = re.compile(r"[^/\\\0]{1,200}\.patch")


@dataclass(frozen=True)
class Artifact:
    """What a verify job handed over."""

    report: Report
    patch: bytes | None
    """Adopts every kernel that was found; None if there is none."""


def read_artifact(folder: Path) -> Artifact:
    """Reads the folder; only the report and the patch that adopts everything are opened.

    Raises:
        SuggestionRefused: the folder contains anything that a verify job does not write.
    """
    files = dict(_files(folder))
    if REPORT not in files:
        raise SuggestionRefused(f"The artifact contains no {REPORT}.")
    try:
        report = read_report(_read(files[REPORT]))
    except ReportError as error:
        raise SuggestionRefused(f"{REPORT} of the artifact is not a report: {error}.") from None
    patches = {name: path for name, path in files.items() if name not in _BESIDE_PATCHES}
    if not patches:
        return Artifact(report, None)
    chosen = f"{PATCHES}/{COMBINED}.patch" if len(patches) > 1 else next(iter(patches))
    if chosen not in patches:
        raise SuggestionRefused(
            f"The artifact contains {len(patches)} patches, but no {PATCHES}/{COMBINED}.patch."
        )
    patch = _read(patches[chosen])
    if len(patch) > LARGEST_PATCH:
        raise SuggestionRefused(
            f"The patch has {len(patch):,} bytes; at most {LARGEST_PATCH:,} are accepted."
        )
    return Artifact(report, patch)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files by their path in the artifact; ``SuggestionRefused`` at the first that must not be there."""
    left, total = MOST_FILES, 0
    for prefix, place in (("", folder), (f"{PATCHES}/", folder / PATCHES)):
        if prefix and not place.exists():
            return
        try:
            entries = os.scandir(place)
        except OSError as error:
            raise SuggestionRefused(f"The artifact cannot be read ({error.strerror}).") from None
        with entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    raise SuggestionRefused(f"The artifact contains more than {MOST_FILES} files.")
                status = entry.stat(follow_symlinks=False)
                if not prefix and entry.name == PATCHES and stat.S_ISDIR(status.st_mode):
                    continue
                expected = _PATCH_NAME.fullmatch(entry.name) if prefix else entry.name in _BESIDE_PATCHES
                if not expected or not stat.S_ISREG(status.st_mode):
                    raise SuggestionRefused(
                        "The artifact contains something that is neither its report, its page, its SARIF file nor a patch."
                    )
                total += status.st_size
                if status.st_size > LARGEST_FILE or total > LARGEST_TOTAL:
                    raise SuggestionRefused(
                        f"The artifact has more than {LARGEST_TOTAL >> 20} MiB, or one of its files more than {LARGEST_FILE >> 20}."
                    )
                yield prefix + entry.name, Path(entry.path)


def _read(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        return file.read(LARGEST_FILE)
