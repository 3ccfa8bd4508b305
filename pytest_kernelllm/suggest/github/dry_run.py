"""Shows what a pull request would contain, without a network, a token, or any change to the repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.markdown import TITLE
from pytest_kernelllm.suggest.github.artifact import Artifact
from pytest_kernelllm.suggest.github.branch import branch_for
from pytest_kernelllm.suggest.github.errors import SuggestionRefused
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.suggest.github.proposal import make_proposal


def dry_run(artifact: Artifact, repository: Path, scratch: Path, kernels_dir: str) -> Iterator[str]:
    """Yields the lines that describe the pull request for the last commit of a repository.

    Args:
        artifact: as it was read; its patch is checked as in the job that suggests.
        repository: top of a git work tree; changes that are not committed do not count.

    Raises:
        SuggestionRefused: the patch would be refused, or does not apply to the last commit.
        GitError: the repository cannot be read.
    """
    if artifact.patch is None:
        yield "There is nothing to suggest: the run found no kernel to adopt."
        return
    git = Git(scratch, str(repository), None)
    base = git.branch() or "HEAD"
    head = git.fetch("HEAD")
    if head is None:
        raise SuggestionRefused(f"{repository} has no commit yet; commit the project first.")
    proposal = make_proposal(git, head, artifact, artifact.patch, kernels_dir)
    if proposal is None:
        raise SuggestionRefused(
            f"The patch does not apply to {head[:12]}, the last commit of {base}; commit, and run pytest --kernelllm again."
        )
    yield f"branch  {branch_for(base)}, from {base} at {head[:12]}"
    yield f"title   {TITLE}"
    yield f"files   {counted(len(proposal.changes), 'file')}"
    yield from (f"        {'new ' if c.old_mode == '000000' else 'edit'}  {c.path}" for c in proposal.changes)
    yield ""
    yield proposal.body(artifact, "address-of-the-run").rstrip()
    yield ""
    yield git.patch(head, proposal.tree).rstrip()
