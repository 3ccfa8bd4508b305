"""Fetches KernelBench's data set from the Hugging Face Hub and lays it out as a checkout has it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.passk.errors import BenchError
from pytest_kernelllm.core.words import counted

DATASET = "ScalingIntelligence/KernelBench"
COMMITS = f"https://huggingface.co/datasets/{DATASET}/commits/main"

_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_NAME = re.compile(r"\d+_[\w.-]{1,200}", re.ASCII)


def fetch_problems(
    revision: str | None,
    levels: Sequence[int],
    folder: Path,
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """Returns a folder with ``level1``, ``level2`` and so on as the data set has them at one commit.

    The problems are programs that run with your rights, as those of a checkout do. Only a commit names the same
    programs for good, so a branch is refused. What was fetched once needs no network again.

    Args:
        revision: full hash of a commit of the data set.
        levels: which to fetch.
        folder: where fetched problems are kept, one folder for each commit.
        progress: called with a few words before something is downloaded.

    Raises:
        BenchError: no commit is named, a library is missing, or the data set cannot be fetched or read.
    """
    if revision is None:
        raise BenchError(
            "Name KernelBench's problems: --kernelbench-path DIR, a checkout of "
            "https://github.com/ScalingIntelligence/KernelBench, or --kernelbench-revision COMMIT, "
            f"a commit of the data set {DATASET} ({COMMITS})."
        )
    if not _COMMIT.fullmatch(revision):
        raise BenchError(
            f"--kernelbench-revision takes the 40 digits of a commit, because a branch may change: not {revision!r}; "
            f"see {COMMITS}."
        )
    place = folder / revision
    missing = [level for level in levels if not (place / f"level{level}").is_dir()]
    if missing:
        progress(f"fetching {counted(len(missing), 'level')} of {DATASET}")
        for level, rows in _download(revision, missing).items():
            _lay_out(rows, level, place)
    return place


def _download(revision: str, levels: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Returns the data set's rows by level."""
    try:
        import pyarrow.parquet
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise BenchError(
            f"{error.name} is not installed; run `pip install 'pytest-kernelllm[kernelbench]'`, "
            "or name a checkout by --kernelbench-path."
        ) from None
    patterns = {level: f"data/level_{level}-*.parquet" for level in levels}
    try:
        snapshot = Path(
            snapshot_download(
                DATASET, repo_type="dataset", revision=revision, allow_patterns=list(patterns.values())
            )
        )
        rows = {
            level: [
                row
                for file in sorted(snapshot.glob(pattern))
                for row in pyarrow.parquet.read_table(file).to_pylist()
            ]
            for level, pattern in patterns.items()
        }
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = f"the Hub answered {status}" if status else type(error).__name__
        raise BenchError(
            f"{DATASET} cannot be fetched at {revision} ({why}): check the commit and the network, "
            "or name a checkout by --kernelbench-path."
        ) from None
    for level, found in rows.items():
        if not found:
            raise BenchError(f"{DATASET} has no level {level} at {revision}; see {COMMITS}.")
    return rows


def _lay_out(rows: Iterable[dict[str, Any]], level: int, place: Path) -> None:
    """Writes a level's problems as files; the level's folder appears when it is complete."""
    place.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=place))
    try:
        for row in rows:
            name, code = row.get("name"), row.get("code")
            stem = name.removesuffix(".py") if isinstance(name, str) else ""
            # A name from the network becomes a path only in this form.
            if not (_NAME.fullmatch(stem) and isinstance(code, str)):
                raise BenchError(f"{DATASET} has a row in level {level} that is no problem: {name!r}.")
            (new / f"{stem}.py").write_text(code, encoding="utf-8")
        new.chmod(0o755)
        new.rename(place / f"level{level}")
    except OSError as error:
        if not (place / f"level{level}").is_dir():  # unless another run was faster
            raise BenchError(
                f"{place} cannot be written: {error.strerror}; free some space, or name a checkout."
            ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
