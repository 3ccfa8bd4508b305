"""Runs git in a scratch repository: suggestions are made in its index, and no code is ever run."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.shorten import whole
from pytest_kernelllm.suggest.github.errors import GitError
from pytest_kernelllm.web.secret import Redactor, Secret, is_safe_for_tokens

WRITER = "kernelllm suggestions"
"""Name of the author and committer of suggestions."""
EMAIL = "kernelllm-suggestions@users.noreply.github.com"

MOST_FILES = 500
"""Most files that may differ between two compared trees."""

_PASSED_ON = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "GIT_SSL_CAINFO")
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.symlinks": "false",  # a link in an untrusted tree becomes a small text file
    "core.autocrlf": "false",
    "core.protectNTFS": "true",
    "core.protectHFS": "true",
    "http.followRedirects": "false",  # the token is for one server
}


@dataclass(frozen=True)
class Change:
    """One file that differs between two trees. ``new`` are its bytes, None if it is not a plain file."""

    path: str
    old_mode: str
    """As git writes it: ``100644``, or ``000000`` if there is no file."""
    new_mode: str
    new: bytes | None


class Git:
    """A bare repository in a folder of its own, and its remote.

    The user's and the system's configuration, hooks and credential helpers are not used. The token is in the
    environment of the git processes that connect to the remote, never in an argument or an address.
    """

    def __init__(self, folder: Path, remote: str, token: Secret | None, largest: int = 4 * 2**20) -> None:
        """Create the repository.

        Args:
            remote: address, without user or password.
            token: for the remote, if it requires one.
            largest: size in bytes of the largest file that is read.

        Raises:
            GitError: the token would travel over an open network unencrypted.
        """
        if token is not None and "://" in remote and not is_safe_for_tokens(remote):
            raise GitError(f"{remote} would receive the token unencrypted", "use its https:// address")
        self.folder = folder
        """Contains the repository and the other files of one run."""
        self._remote = remote
        login = None if token is None else _basic(token)
        self._redact = Redactor([token, login])
        self._login: dict[str, str] = {}
        if login is not None:
            self._login[f"http.{remote}.extraheader"] = f"Authorization: Basic {login.reveal()}"
        self._largest = largest
        folder.mkdir(parents=True, exist_ok=True)
        self._repository = folder / "repository"
        self._run("init", "--quiet", "--bare", str(self._repository))

    def fetch(self, ref: str) -> str | None:
        """Fetches a ref of the remote without its history and returns the commit; None if there is no such ref."""
        listed = self._run("ls-remote", self._remote, ref, online=True).decode().split()
        if ref not in listed[1::2]:
            return None
        self._run("fetch", "--quiet", "--depth=1", "--no-tags", self._remote, ref, online=True)
        return self._run("rev-parse", "--verify", "FETCH_HEAD").decode().strip()

    def apply(self, commit: str, patch: bytes) -> str:
        """Returns the tree of ``commit`` with a patch applied; ``GitError`` unless all of it applies."""
        index = self._index(commit)
        self._run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch, extra=index)
        return self._run("write-tree", extra=index).decode().strip()

    def patch(self, old: str, new: str) -> str:
        """Returns the difference between two trees or commits for people to read."""
        return self._run("diff-tree", "-r", "-p", "--no-renames", old, new).decode("utf-8", "replace")

    def branch(self) -> str:
        """Returns the remote's current branch; empty if it has none."""
        listed = self._run("ls-remote", "--symref", self._remote, "HEAD", online=True).decode()
        found = re.match(r"ref: refs/heads/(\S+)\tHEAD", listed)
        return found[1] if found else ""

    def changes(self, old: str, new: str) -> list[Change]:
        """Returns the files that differ between two trees or commits; a rename is a deletion and an addition.

        Raises:
            GitError: more than ``MOST_FILES`` differ, or one of them is too large.
        """
        raw = self._run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
        parts = raw.decode("utf-8", "surrogateescape").split("\0")
        if len(parts) > 2 * MOST_FILES + 1:
            raise GitError("comparing the files", f"more than {MOST_FILES} of them differ")
        changes = []
        for entry, path in zip(parts[0::2], parts[1::2], strict=False):
            old_mode, new_mode, _, new_blob, _ = entry.lstrip(":").split(" ")
            changes.append(Change(path, old_mode, new_mode, self._content(new_mode, new_blob)))
        return changes

    def write_sources(self, commit: str, folder: Path) -> None:
        """Writes the Python files of a commit into ``folder`` for reading; symbolic links become plain files."""
        index = self._index(commit)
        names = self._run("ls-files", "-z", "--", "*.py", extra=index)
        # git requires a work tree, but writes only below the prefix.
        extra = {**index, "GIT_WORK_TREE": str(folder)}
        folder.mkdir(parents=True, exist_ok=True)
        self._run("checkout-index", "-q", "-z", "--stdin", f"--prefix={folder}/", stdin=names, extra=extra)

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Creates a commit by ``WRITER`` and returns its hash."""
        names = {"AUTHOR": WRITER, "COMMITTER": WRITER}
        extra = {f"GIT_{role}_NAME": name for role, name in names.items()}
        extra |= {f"GIT_{role}_EMAIL": EMAIL for role in names}
        done = self._run("commit-tree", tree, "-p", parent, stdin=message.encode(), extra=extra)
        return done.decode().strip()

    def commit_text(self, commit: str) -> str:
        """Returns a commit as git stores it: headers, a blank line, the message."""
        return self._run("cat-file", "commit", commit).decode("utf-8", "replace")

    def tree_of(self, commit: str) -> str:
        """Returns the tree of a commit."""
        return self._run("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def push(self, commit: str, ref: str, seen: str | None) -> None:
        """Sets a ref of the remote, provided that it still is the commit ``seen`` (None: it does not exist)."""
        lease = f"--force-with-lease={ref}:{seen or ''}"
        self._run("push", "--quiet", "--porcelain", lease, self._remote, f"{commit}:{ref}", online=True)

    def delete(self, ref: str, seen: str) -> None:
        """Deletes a ref of the remote, provided that it still is the commit ``seen``."""
        self._run("push", "--quiet", f"--force-with-lease={ref}:{seen}", self._remote, f":{ref}", online=True)

    # ------------------------------------------------------------------ git itself

    def _index(self, commit: str) -> dict[str, str]:
        """Reads a commit into an index of its own and returns the environment that selects it."""
        extra = {"GIT_INDEX_FILE": str(self._repository / "index-of-suggestion")}
        self._run("read-tree", commit, extra=extra)
        return extra

    def _content(self, mode: str, blob: str) -> bytes | None:
        if not mode.startswith("100"):
            return None  # no file, a link or a submodule
        if int(self._run("cat-file", "-s", blob)) > self._largest:
            raise GitError("reading a file", f"it has more than {self._largest:,} bytes")
        return self._run("cat-file", "blob", blob)

    def _run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        online: bool = False,
    ) -> bytes:
        config = {**_CONFIG, **(self._login if online else {})}
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {
            "HOME": str(self._repository),
            "LC_ALL": "C.UTF-8",
            "GIT_DIR": str(self._repository),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **_as_environment(config.items()),
            **(extra or {}),
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            # git writes the response to a push to both.
            output = (done.stderr + b"\n" + (done.stdout if arguments[0] == "push" else b"")).decode(
                "utf-8", "replace"
            )
            raise GitError(f"git {arguments[0]}", whole(self._redact(output), 600))
        return done.stdout


def _as_environment(config: Iterable[tuple[str, str]]) -> dict[str, str]:
    pairs = list(config)
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for i, (key, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{i}": key, f"GIT_CONFIG_VALUE_{i}": value}
    return variables


def _basic(token: Secret) -> Secret:
    return Secret(base64.b64encode(f"x-access-token:{token.reveal()}".encode()).decode())
