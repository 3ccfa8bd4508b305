"""What a pull request would contain: a tree made of an artifact's checked patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_kernelllm.report.markdown import pull_request_section
from pytest_kernelllm.suggest.github.allowed import check_changes
from pytest_kernelllm.suggest.github.artifact import Artifact
from pytest_kernelllm.suggest.github.branch import digest_of
from pytest_kernelllm.suggest.github.errors import GitError
from pytest_kernelllm.suggest.github.git import Change, Git


@dataclass(frozen=True)
class Proposal:
    """The checked changes to a commit."""

    tree: str
    changes: Sequence[Change]
    targets: Sequence[str]
    """``Target.id`` of each target whose kernel is adopted."""
    digest: str
    """Digest of the artifact's patch, see ``digest_of``."""

    def body(self, artifact: Artifact, run: str) -> str:
        """Returns the action's part of the pull request's text; ``run`` is the address of the run that verified."""
        return pull_request_section(artifact.report, self.digest, run, self.targets)


def make_proposal(git: Git, head: str, artifact: Artifact, patch: bytes, kernels_dir: str) -> Proposal | None:
    """Returns what the patch of an artifact changes at a commit; None if it does not apply there.

    Raises:
        SuggestionRefused: the patch is not one that a verify job writes, or a kernel of it does not pass the checks.
    """
    try:
        tree = git.apply(head, patch)
    except GitError:
        return None
    changes = git.changes(head, tree)
    sources = git.folder / "sources"
    git.write_sources(head, sources)
    verified = [entry.target for entry in artifact.report.targets]
    targets = check_changes(changes, sources, verified, kernels_dir)
    return Proposal(tree, changes, targets, digest_of(patch))
