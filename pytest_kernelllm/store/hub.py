"""A store that others share: verdicts in a dataset repository on the Hugging Face Hub.

What comes from there is read into memory, bounded, and is stored under the key in its own content. No name that the
repository gives a file becomes a path here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelllm_judge.core.errors import SessionError
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.store.entry import DamagedEntry, UnsignedEntry
from pytest_kernelllm.store.store import Store

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoSibling

LARGEST = 4 << 20
"""Bytes of the largest entry that is fetched."""
MOST = 20_000
"""Entries that a repository may hold."""
AT_ONCE = 8
TIMEOUT = 60.0
"""Seconds without a byte after which a request has failed."""
CLIENT = "pytest-kernelllm"
"""Name that requests to the Hub carry."""
A_COMMIT = 200
"""Files that are sent in one commit."""

_ADDRESS = re.compile(r"hf://datasets/(\w[\w.-]{0,95}/\w[\w.-]{0,95})/?", re.ASCII)
_VERDICT = re.compile(r"targets/\w[\w.-]{0,99}/verdicts/[0-9a-f]{64}-[0-9a-f]{16}\.json", re.ASCII)


class HubError(SessionError):
    """The repository cannot be read or written; one sentence, without anything secret."""


@dataclass(frozen=True)
class Pulled:
    """What became of the verdicts of a repository."""

    taken: int = 0
    known: int = 0
    unsigned: int = 0
    """Number of entries that the key here did not sign."""
    unusable: int = 0
    """Too large, cut off, altered, of another version, or not where their content says."""


class HubStore:
    """One dataset repository."""

    def __init__(self, address: str, progress: Callable[[str], None] = lambda text: None) -> None:
        """For an address like ``hf://datasets/OWNER/NAME``.

        Raises:
            HubError: it is no such address, or ``huggingface_hub`` is not installed.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise HubError(f"{address!r} is no address of a store; write hf://datasets/OWNER/NAME.")
        self.repository = match[1]
        self._progress = progress

    def push(self, store: Store) -> tuple[int, int]:
        """Sends verdicts, with the texts of accepted kernels for people to read; creates a private repository if there is none.

        Existing entries stay, except for those that the key here did not sign.

        Returns:
            How many verdicts the store has, and how many of them the repository did not have.

        Raises:
            HubError: the repository cannot be written.
        """
        entries = list(store.verdicts.entries())
        mine = {name: content for name, content, _ in entries}
        texts = {
            store.name_of(store.renderings.kernel(record.source_hash, record.verdict.kernel_hash)): record
            for _, _, record in entries
            if record.verdict.accepted
        }
        with self._talking("written") as api:
            from huggingface_hub import CommitOperationAdd

            api.create_repo(self.repository, repo_type="dataset", private=True, exist_ok=True)
            there = {name: file.blob_id for name, file in self._files(api)[1].items()}
            offered = {name: record.candidate.source.encode() for name, record in texts.items()} | mine
            operations = [
                CommitOperationAdd(name, content)
                for name, content in sorted(offered.items())
                if name not in there or (store.key and name in mine and there[name] != _blob_id(content))
            ]
            for start in range(0, len(operations), A_COMMIT):
                self._progress(
                    f"sending {start + 1} to {min(start + A_COMMIT, len(operations))} of {counted(len(operations), 'file')}"
                )
                api.create_commit(
                    self.repository,
                    operations[start : start + A_COMMIT],
                    commit_message="Verdicts of pytest-kernelllm",
                    repo_type="dataset",
                )
        return len(mine), len(mine.keys() - there)

    def pull(self, store: Store) -> Pulled:
        """Takes the verdicts that the store does not have; whatever it has stays.

        Raises:
            HubError: the repository cannot be read, or holds more than a store does.
        """
        counts = dict.fromkeys(Pulled.__dataclass_fields__, 0)
        with self._talking("read") as api:
            revision, files = self._files(api)
            names = sorted(name for name in files if _VERDICT.fullmatch(name))
            if len(names) > MOST:
                raise HubError(
                    f"{self.repository} holds {len(names)} verdicts; no more than {MOST} are read."
                )
            self._progress(f"{counted(len(names), 'verdict')} at {self.repository}")
            small = [name for name in names if (files[name].size or 0) <= LARGEST]
            counts["unusable"] += len(names) - len(small)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for start in range(0, len(small), AT_ONCE):  # so that no more than these are in memory
                    some = small[start : start + AT_ONCE]
                    fetched = pool.map(lambda name: self._fetch(api, name, revision), some)
                    for name, content in zip(some, fetched, strict=True):
                        counts[_take(store, name, content)] += 1
        return Pulled(**counts)

    def _files(self, api: HfApi) -> tuple[str, dict[str, RepoSibling]]:
        """The newest commit, and its files."""
        info = api.dataset_info(self.repository, files_metadata=True, timeout=TIMEOUT)
        return str(info.sha), {file.rfilename: file for file in info.siblings or ()}

    def _fetch(self, api: HfApi, name: str, revision: str) -> bytes | None:
        """A file of the repository; None if it is larger than an entry may be, whatever size the listing gave."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented, but not in its __all__
            build_hf_headers,
            hf_raise_for_status,
        )

        url = hf_hub_url(self.repository, name, repo_type="dataset", revision=revision, endpoint=api.endpoint)
        # Nothing that grows on arrival.
        headers = build_hf_headers(library_name=CLIENT) | {"accept-encoding": "identity"}
        content = b""
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT) as answer:
            hf_raise_for_status(answer)
            for piece in answer.iter_raw():
                content += piece
                if len(content) > LARGEST:
                    return None
        return content

    @contextmanager
    def _talking(self, what: str) -> Iterator[HfApi]:
        """Gives the Hub's client; whatever goes wrong with it becomes one sentence.

        Nothing of the server's answer is repeated: it could hold what it was sent.
        """
        try:
            from huggingface_hub import HfApi, errors
        except ImportError:
            raise HubError(
                "huggingface_hub is not installed; run `pip install 'pytest-kernelllm[endpoint]'`."
            ) from None
        # Of httpx until huggingface_hub 2, then of httpx2.
        http_error: type[Exception] = getattr(errors, "HTTPError", OSError)
        try:
            yield HfApi(library_name=CLIENT)
        except HubError:
            raise
        except errors.OfflineModeIsEnabled:
            raise HubError(f"{self.repository} cannot be {what}: HF_HUB_OFFLINE is set.") from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            advice = (
                "; is it there, and is HF_TOKEN, or `hf auth login`, allowed to?" if status < 500 else "."
            )
            raise HubError(f"{self.repository} cannot be {what}: the Hub answered {status}{advice}") from None
        except (http_error, OSError, ValueError, KeyError, TypeError) as error:
            raise HubError(
                f"{self.repository} cannot be {what}: {type(error).__name__} on the way; try again."
            ) from None


def _blob_id(content: bytes) -> str:
    """How git names a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _take(store: Store, name: str, content: bytes | None) -> str:
    """What became of one entry, by the names of ``Pulled``."""
    if content is None:
        return "unusable"
    try:
        return "taken" if store.verdicts.take(name, content) else "known"
    except UnsignedEntry:
        return "unsigned"
    except DamagedEntry:
        return "unusable"
