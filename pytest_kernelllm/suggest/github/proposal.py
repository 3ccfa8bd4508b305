"""What a pull request would contain: a tree made of an artifact's checked patch, without the kernels that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_kernelllm.report.markdown import pull_request_section
from pytest_kernelllm.suggest.github.allowed import check_changes
from pytest_kernelllm.suggest.github.artifact import Artifact
from pytest_kernelllm.suggest.github.branch import digest_of
from pytest_kernelllm.suggest.github.errors import GitError
from pytest_kernelllm.suggest.github.git import Change, Git
from pytest_kernelllm.suggest.github.kernels import LeftOut


@dataclass(frozen=True)
class Proposal:
    """The checked changes to a commit."""

    tree: str
    changes: Sequence[Change]
    targets: Sequence[str]
    """``Target.id`` of each target whose kernel is adopted."""
    left_out: Sequence[LeftOut]
    """Kernels of the patch that the checks refused; nothing of them is in the tree."""
    digest: str
    """Digest of the artifact's patch, see ``digest_of``."""

    def body(self, artifact: Artifact, run: str) -> str:
        """Returns the action's part of the pull request's text; ``run`` is the address of the run that verified."""
        reasons = {kernel.target: kernel.reason for kernel in self.left_out}
        return pull_request_section(artifact.report, self.digest, run, self.targets, reasons)


def make_proposal(git: Git, head: str, artifact: Artifact, patch: bytes, kernels_dir: str) -> Proposal | None:
    """Returns what the patch of an artifact changes at a commit; None if it does not apply there.

    Raises:
        SuggestionRefused: the patch is not one that a verify job writes, or no kernel of it passes the checks.
    """
    try:
        tree = git.apply(head, patch)
    except GitError:
        return None
    changes = git.changes(head, tree)
    sources = git.folder / "sources"
    git.write_sources(head, sources)
    allowed = check_changes(
        changes, sources, [entry.target for entry in artifact.report.targets], kernels_dir
    )
    if allowed.left_out:
        tree = git.with_files(head, allowed.files)
        changes = git.changes(head, tree)
    return Proposal(tree, changes, allowed.targets, allowed.left_out, digest_of(patch))
