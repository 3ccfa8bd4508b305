"""The branch of suggestions for each base: what its commit records, and whether people have changed it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from pytest_kernelllm.suggest.figures import without_figures
from pytest_kernelllm.suggest.github.context import BRANCHES
from pytest_kernelllm.suggest.github.git import EMAIL, Git

_TRAILER = re.compile(r"^Kernelllm-(Patch|Base|Tree): ([0-9a-f]{40,64})$", re.MULTILINE)


@dataclass(frozen=True)
class Head:
    """The commit that the branch points to."""

    commit: str
    ours: bool
    """Whether it is the action's own unchanged commit, directly on the verified commit."""
    patch: str = ""
    """``digest_of`` the patch it was made from, if it is ours."""


def branch_for(base: str) -> str:
    """Returns the name of the branch with suggestions for the branch ``base``."""
    return BRANCHES + base


def digest_of(patch: bytes) -> str:
    """Returns the SHA-256 of a patch without figures, which differ slightly each time they are measured."""
    return hashlib.sha256(without_figures(patch)).hexdigest()


def message_for(digest: str, base: str, tree: str, verified: str) -> str:
    """Returns the commit's message."""
    return (
        "Adopt verified Triton kernels\n\n"
        f"Written by pytest-kernelllm from what {verified} verified.\n\n"
        f"Kernelllm-Patch: {digest}\nKernelllm-Base: {base}\nKernelllm-Tree: {tree}\n"
    )


def look_at(git: Git, branch: str) -> Head | None:
    """Returns the head of a branch of the remote; None if there is no such branch.

    A commit on top, an amended one and a rebased one all differ from what the trailers record, so they count as
    somebody's work.
    """
    commit = git.fetch(f"refs/heads/{branch}")
    if commit is None:
        return None
    headers, _, message = git.commit_text(commit).partition("\n\n")
    lines = headers.splitlines()
    recorded = dict(_TRAILER.findall(message))
    parents = [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]
    committed = next((line for line in lines if line.startswith("committer ")), "")
    ours = (
        f"<{EMAIL}>" in committed
        and parents == [recorded.get("Base")]
        and git.tree_of(commit) == recorded.get("Tree")
        and "Patch" in recorded
    )
    return Head(commit, ours, recorded["Patch"] if ours else "")
