"""Turns an artifact into one pull request: opens it, updates it, leaves it alone or closes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_kernelllm.report.markdown import COMMENT, MARKED, TITLE, comment_text, with_section
from pytest_kernelllm.suggest.github.artifact import Artifact
from pytest_kernelllm.suggest.github.branch import branch_for, look_at, message_for
from pytest_kernelllm.suggest.github.client import GitHub
from pytest_kernelllm.suggest.github.context import BRANCHES, Source, WorkflowJob
from pytest_kernelllm.suggest.github.errors import ApiError, GitError
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.suggest.github.proposal import Proposal, make_proposal
from pytest_kernelllm.suggest.place import FOLDER

Result = Literal[
    "opened", "updated", "unchanged", "closed", "nothing", "kept", "declined", "outdated", "artifact"
]

_MOVED_ON = "The branch was deleted or has new commits since it was verified."
_NO_PERMISSION = (401, 403, 404)
_GIT_REFUSED = re.compile(
    r"\b403\b|\b401\b|permission|denied|not authorized|protected branch|GH0\d\d|could not read Username"
    r"|Authentication failed",
    re.IGNORECASE,
)

_OVERTAKEN = re.compile(r"stale info|cannot lock ref|failed to update ref|fetch first")


@dataclass(frozen=True)
class SuggestOutcome:
    """What was done with an artifact."""

    result: Result
    sentence: str
    url: str = ""
    """Address of the pull request."""


def suggest(
    job: WorkflowJob,
    artifact: Artifact,
    git: Git,
    github: GitHub | None,
    kernels_dir: str = FOLDER,
    *,
    comment: bool = False,
) -> SuggestOutcome:
    """Suggests the kernels of an artifact as far as permissions and the branch allow.

    Args:
        artifact: as it was read; its patch is checked here.
        github: the API; None without a token.
        comment: whether a comment on the pull request whose head was verified says what was found.

    Raises:
        SuggestionRefused: the patch is not one that a verify job writes.
        ApiError, GitError: GitHub failed; another run may succeed.
    """
    source = job.source
    if source is None or (source.fork is None and source.branch.startswith(BRANCHES)):
        return SuggestOutcome(
            "nothing", "Suggestions are made only for branches that are not suggestions themselves."
        )
    if github is None:
        return _left("The job has no token.")
    suggesting = _Suggesting(job, source, git, github)
    outcome = suggesting.run(artifact, kernels_dir)
    return suggesting.comment(artifact, outcome) if comment else outcome


class _Suggesting:
    """Suggests the kernels of one artifact for one source."""

    def __init__(self, job: WorkflowJob, source: Source, git: Git, github: GitHub) -> None:
        self.job, self.source, self.git, self.github = job, source, git, github
        self.branch = branch_for(source.branch)
        self.ref = f"refs/heads/{self.branch}"

    def run(self, artifact: Artifact, kernels_dir: str) -> SuggestOutcome:
        try:
            pull = self._verified_pull() if self.source.pull_request else None
            if artifact.patch is None:
                return self._retire(artifact)
            ref = f"refs/pull/{pull['number']}/head" if pull else f"refs/heads/{self.source.branch}"
            head = self.git.fetch(ref) if pull or not self.source.fork else None
            if head is None or (self.source.pull_request and head != self.source.commit):
                return SuggestOutcome("outdated", _MOVED_ON)
            proposal = make_proposal(self.git, head, artifact, artifact.patch, kernels_dir)
            if proposal is None:
                return SuggestOutcome(
                    "outdated",
                    "The patch does not apply to the branch, which may have changed since it was verified.",
                )
            if self.source.fork:
                return _left("The commit comes from a fork, and this job cannot push to its branches.")
            return self._pull_request(artifact, proposal, head)
        except ApiError as error:
            if error.status not in _NO_PERMISSION:
                raise
            return _left(str(error))
        except GitError as error:
            return self._stopped(error)

    def comment(self, artifact: Artifact, outcome: SuggestOutcome) -> SuggestOutcome:
        """Rewrites the one comment on the verified pull request, or adds it; says so where that is not permitted."""
        try:
            if pull := self._verified_pull():
                text = comment_text(artifact.report, self.source.commit, self.job.verified)
                own = next(filter(_results, self.github.comments(pull["number"])), None)
                if own is None:
                    self.github.add_comment(pull["number"], body=text)
                else:
                    self.github.update_comment(own["id"], body=text)
        except ApiError as error:
            if error.status not in _NO_PERMISSION:
                raise
            return replace(outcome, sentence=f"{outcome.sentence} The job may not comment: {error}")
        return outcome

    def _verified_pull(self) -> dict[str, Any] | None:
        """The open pull request whose head was verified."""
        owner = self.source.fork or self.job.owner
        pulls = self.github.pulls(f"{owner}:{self.source.branch}", state="open")
        return next((p for p in pulls if p["head"]["sha"] == self.source.commit), None)

    # ------------------------------------------------------------------ the pull request

    def _pulls(self) -> list[dict[str, Any]]:
        pulls = self.github.pulls(f"{self.job.owner}:{self.branch}", state="all", base=self.source.branch)
        return [
            p for p in pulls if ((p["head"] or {}).get("repo") or {}).get("full_name") == self.job.repository
        ]

    def _pull_request(self, artifact: Artifact, proposal: Proposal, base: str) -> SuggestOutcome:
        digest = proposal.digest
        pulls = self._pulls()
        open_pull = next((p for p in pulls if p["state"] == "open"), None)
        head = look_at(self.git, self.branch)
        if head is not None and not head.ours:
            sentence = (
                f"{self.branch} contains commits that this action did not make, so it is not changed. "
                "Merge it or delete the branch, and the next run makes a new suggestion."
            )
            return SuggestOutcome("kept", sentence, open_pull["html_url"] if open_pull else "")
        if open_pull is None and (declined := next((p for p in pulls if _declined(p, digest)), None)):
            return SuggestOutcome(
                "declined", "Somebody closed a pull request with the same kernels.", declined["html_url"]
            )
        pushed = head is None or head.patch != digest
        if pushed:
            message = message_for(digest, base, proposal.tree, self.job.verified)
            commit = self.git.commit(proposal.tree, base, message)
            self.git.push(commit, self.ref, head.commit if head else None)
        section = proposal.body(artifact, self.job.verified)
        if open_pull is None:
            return self._open(section)
        if not pushed:
            return SuggestOutcome(
                "unchanged", "The pull request already has these kernels.", open_pull["html_url"]
            )
        self.github.update_pull(open_pull["number"], body=with_section(open_pull["body"] or "", section))
        return SuggestOutcome(
            "updated", "The pull request was updated with the new kernels.", open_pull["html_url"]
        )

    def _open(self, section: str) -> SuggestOutcome:
        base = self.source.branch
        try:
            pull = self.github.open_pull(title=TITLE, head=self.branch, base=base, body=section)
        except ApiError as error:
            if error.status not in _NO_PERMISSION:
                raise
            compare = f"{self.job.server}/{self.job.repository}/compare/{base}...{self.branch}?expand=1"
            return SuggestOutcome(
                "artifact", f"The branch is pushed, but the job may not open a pull request. {error}", compare
            )
        return SuggestOutcome("opened", "A pull request was opened.", pull["html_url"])

    def _retire(self, artifact: Artifact) -> SuggestOutcome:
        """Closes the pull request and deletes its branch when nothing is left to suggest, unless people changed it."""
        nothing = SuggestOutcome("nothing", "There is nothing to suggest.")
        if self.source.fork or not artifact.report.targets:
            return nothing
        if self.git.fetch(f"refs/heads/{self.source.branch}") != self.source.commit:
            return SuggestOutcome("outdated", _MOVED_ON)
        open_pull = next((p for p in self._pulls() if p["state"] == "open"), None)
        head = look_at(self.git, self.branch)
        if head is not None and not head.ours:
            return SuggestOutcome(
                "kept", f"There is nothing to suggest; {self.branch} contains commits by others and stays."
            )
        if open_pull is not None:
            body = MARKED.sub(
                lambda m: m[0].replace("state=offered", "state=outdated"), open_pull["body"] or ""
            )
            self.github.update_pull(open_pull["number"], body=body, state="closed")
        if head is not None:
            self.git.delete(self.ref, head.commit)
        if open_pull is None:
            return nothing
        return SuggestOutcome(
            "closed", "The pull request was closed: nothing is left to suggest.", open_pull["html_url"]
        )

    def _stopped(self, error: GitError) -> SuggestOutcome:
        """The outcome if the remote refused access or a push; raises any other error."""
        if _OVERTAKEN.search(error.output):
            return SuggestOutcome(
                "kept", f"Somebody pushed to {self.branch} at the same time; it is not changed."
            )
        if _GIT_REFUSED.search(error.output):
            return _left(f"The job may not read the repository, or push {self.branch} ({error.output}).")
        raise error


def _declined(pull: dict[str, Any], digest: str) -> bool:
    """Whether somebody closed a pull request with this patch."""
    found = MARKED.search(pull["body"] or "")
    offered = found is not None and found["patch"] == digest and found["state"] == "offered"
    return offered and pull["state"] == "closed" and not pull["merged_at"]


def _results(comment: dict[str, Any]) -> bool:
    """Whether a comment says what a run found, and is not by a stranger, who could rewrite it afterwards."""
    bot = (comment["user"] or {}).get("type") == "Bot"
    ours = bot or comment.get("author_association") in ("OWNER", "MEMBER", "COLLABORATOR")
    return ours and (comment.get("body") or "").startswith(COMMENT)


def _left(why: str) -> SuggestOutcome:
    return SuggestOutcome(
        "artifact", f"{why} The patch is in the artifact: download it and apply it with `git apply`."
    )
