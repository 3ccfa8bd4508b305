"""From a verified artifact to one pull request: opened, brought up to date, left alone or closed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_kernelllm.report.markdown import MARKED, TITLE, pull_request_section, with_section
from pytest_kernelllm.suggest.github.allowed import check_changes
from pytest_kernelllm.suggest.github.artifact import Artifact
from pytest_kernelllm.suggest.github.branch import branch_for, digest_of, look_at, message_for
from pytest_kernelllm.suggest.github.client import GitHub
from pytest_kernelllm.suggest.github.context import BRANCHES, Job, Source
from pytest_kernelllm.suggest.github.errors import ApiError, GitError
from pytest_kernelllm.suggest.github.git import Change, Git
from pytest_kernelllm.suggest.github.review import fitting
from pytest_kernelllm.suggest.place import FOLDER

Result = Literal[
    "opened",
    "updated",
    "unchanged",
    "closed",
    "reviewed",
    "nothing",
    "kept",
    "declined",
    "outdated",
    "artifact",
]

_MOVED_ON = "The branch is gone or has moved on since it was verified."
_NO_PERMISSION = (401, 403, 404)
_GIT_REFUSED = re.compile(
    r"\b403\b|\b401\b|permission|denied|not authorized|protected branch|GH0\d\d|could not read Username"
    r"|Authentication failed",
    re.IGNORECASE,
)

_OVERTAKEN = re.compile(r"stale info|cannot lock ref|failed to update ref|fetch first")


@dataclass(frozen=True)
class Outcome:
    """What became of an artifact."""

    result: Result
    sentence: str
    url: str = ""
    """Of the pull request."""


def suggest(
    job: Job, artifact: Artifact, git: Git, github: GitHub | None, kernels_dir: str = FOLDER
) -> Outcome:
    """Do with an artifact what the permissions and the branch allow.

    Args:
        job: whose source was verified.
        artifact: read, and not yet believed.
        git: whose remote is the job's repository.
        github: the API; None without a token.
        kernels_dir: the project's setting of that name.

    Raises:
        Refused: the patch is none that a verify job writes.
        ApiError, GitError: GitHub fails in a way that another run may not.
    """
    source = job.source
    if source is None or (source.fork is None and source.branch.startswith(BRANCHES)):
        return Outcome("nothing", "Suggestions are made for branches, and not for those of suggestions.")
    if github is None:
        return _left("The job has no token.")
    return _Suggesting(job, source, git, github).run(artifact, kernels_dir)


class _Suggesting:
    """One artifact, one source."""

    def __init__(self, job: Job, source: Source, git: Git, github: GitHub) -> None:
        self.job, self.source, self.git, self.github = job, source, git, github
        self.branch = branch_for(source.branch)
        self.ref = f"refs/heads/{self.branch}"

    def run(self, artifact: Artifact, kernels_dir: str) -> Outcome:
        try:
            pull = self._verified_pull() if self.source.pull_request else None
            if artifact.patch is None:
                return self._retire(artifact)
            ref = f"refs/pull/{pull['number']}/head" if pull else f"refs/heads/{self.source.branch}"
            head = self.git.fetch(ref) if pull or not self.source.fork else None
            if head is None or (self.source.pull_request and head != self.source.commit):
                return Outcome("outdated", _MOVED_ON)
            changed = self._changed(head, artifact, artifact.patch, kernels_dir)
            if changed is None:
                return Outcome(
                    "outdated",
                    "The patch does not apply to the branch, which may have changed since it was verified.",
                )
            tree, changes = changed
            if pull and (comments := fitting(changes, self.github.pull_files(pull["number"]))):
                return self._review(pull, artifact, comments)
            if self.source.fork:
                return _left("The commit comes from a fork, whose branches this job cannot write to.")
            return self._pull_request(artifact, head, tree)
        except ApiError as error:
            if error.status not in _NO_PERMISSION:
                raise
            return _left(str(error))
        except GitError as error:
            return self._stopped(error)

    def _verified_pull(self) -> dict[str, Any] | None:
        """The open pull request whose head was verified."""
        owner = self.source.fork or self.job.owner
        pulls = self.github.pulls(f"{owner}:{self.source.branch}", state="open")
        return next((p for p in pulls if p["head"]["sha"] == self.source.commit), None)

    def _changed(
        self, head: str, artifact: Artifact, patch: bytes, kernels_dir: str
    ) -> tuple[str, Sequence[Change]] | None:
        """The tree with the patch and what differs in it, all of it allowed; None if the patch does not apply."""
        try:
            tree = self.git.apply(head, patch)
        except GitError:
            return None
        changes = self.git.changes(head, tree)
        sources = self.git.folder / "sources"
        self.git.write_sources(head, sources)
        check_changes(changes, sources, [entry.target for entry in artifact.report.targets], kernels_dir)
        return tree, changes

    # ------------------------------------------------------------------ the pull request

    def _pulls(self) -> list[dict[str, Any]]:
        pulls = self.github.pulls(f"{self.job.owner}:{self.branch}", state="all", base=self.source.branch)
        return [
            p for p in pulls if ((p["head"] or {}).get("repo") or {}).get("full_name") == self.job.repository
        ]

    def _pull_request(self, artifact: Artifact, base: str, tree: str) -> Outcome:
        assert artifact.patch is not None
        digest = digest_of(artifact.patch)
        pulls = self._pulls()
        open_pull = next((p for p in pulls if p["state"] == "open"), None)
        head = look_at(self.git, self.branch)
        if head is not None and not head.ours:
            return self._keep(open_pull, digest)
        if open_pull is None and (declined := next((p for p in pulls if _declined(p, digest)), None)):
            return Outcome(
                "declined", "Somebody closed a pull request with these very kernels.", declined["html_url"]
            )
        pushed = head is None or head.patch != digest
        if pushed:
            message = message_for(artifact.patch, base, tree, self.job.verified)
            commit = self.git.commit(tree, base, message)
            self.git.push(commit, self.ref, head.commit if head else None)
        section = pull_request_section(artifact.report, digest, self.job.verified)
        if open_pull is None:
            return self._open(section)
        if not pushed:
            return Outcome("unchanged", "The pull request has these kernels already.", open_pull["html_url"])
        self.github.update_pull(open_pull["number"], body=with_section(open_pull["body"] or "", section))
        return Outcome("updated", "The pull request has the new kernels.", open_pull["html_url"])

    def _open(self, section: str) -> Outcome:
        base = self.source.branch
        try:
            pull = self.github.open_pull(title=TITLE, head=self.branch, base=base, body=section)
        except ApiError as error:
            if error.status not in _NO_PERMISSION:
                raise
            compare = f"{self.job.server}/{self.job.repository}/compare/{base}...{self.branch}?expand=1"
            return Outcome(
                "artifact", f"The branch is pushed, but the job may not open a pull request. {error}", compare
            )
        return Outcome("opened", "There is a new pull request.", pull["html_url"])

    def _keep(self, open_pull: dict[str, Any] | None, digest: str) -> Outcome:
        """Leave a branch with somebody's work alone, and say so once."""
        sentence = (
            f"{self.branch} holds commits that are not this action's, so it is left as it is. "
            "Merge it, or delete the branch, and the next run suggests anew."
        )
        if open_pull is None:
            return Outcome("kept", sentence)
        mark = f"<!-- kernelllm:kept patch={digest} -->"
        if not any(mark in (c["body"] or "") for c in self.github.comments(open_pull["number"])):
            text = f"{mark}\nA newer run verified other kernels than this branch has. {sentence}"
            self.github.comment(
                open_pull["number"], f"{text} The new ones are an artifact of {self.job.verified}."
            )
        return Outcome("kept", sentence, open_pull["html_url"])

    def _retire(self, artifact: Artifact) -> Outcome:
        """Nothing to suggest any more: close what suggests something, unless somebody works on it."""
        nothing = Outcome("nothing", "There is nothing to suggest.")
        if self.source.fork or not artifact.report.targets:
            return nothing
        if self.git.fetch(f"refs/heads/{self.source.branch}") != self.source.commit:
            return Outcome("outdated", _MOVED_ON)
        open_pull = next((p for p in self._pulls() if p["state"] == "open"), None)
        head = look_at(self.git, self.branch)
        if head is not None and not head.ours:
            return Outcome(
                "kept", f"There is nothing to suggest; {self.branch} holds somebody's commits and stays."
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
        return Outcome("closed", "Nothing is left of what the pull request suggested.", open_pull["html_url"])

    def _stopped(self, error: GitError) -> Outcome:
        """What it means that the remote said no; raises the error where it is nothing of the kind."""
        if _OVERTAKEN.search(error.said):
            return Outcome(
                "kept", f"Somebody pushed to {self.branch} at this very moment; it is left as it is."
            )
        if _GIT_REFUSED.search(error.said):
            return _left(f"The job may not read the repository, or push {self.branch} ({error.said}).")
        raise error

    # ------------------------------------------------------------------ the review

    def _review(self, pull: dict[str, Any], artifact: Artifact, comments: list[dict[str, Any]]) -> Outcome:
        assert artifact.patch is not None
        number, digest = pull["number"], digest_of(artifact.patch)
        for review in self.github.reviews(number):
            found = MARKED.search(review["body"] or "")
            if found is None or found["state"] != "offered":
                continue
            if found["patch"] == digest:
                return Outcome(
                    "unchanged", "The pull request has these suggestions already.", pull["html_url"]
                )
            self.github.update_review(number, review["id"], "Outdated: a newer run has other suggestions.")
        body = pull_request_section(artifact.report, digest, self.job.verified)
        self.github.review(number, commit=self.source.commit, body=body, comments=comments)
        return Outcome("reviewed", "The pull request has the kernels as suggestions.", pull["html_url"])


def _declined(pull: dict[str, Any], digest: str) -> bool:
    """Whether a person closed a pull request with this patch."""
    found = MARKED.search(pull["body"] or "")
    offered = found is not None and found["patch"] == digest and found["state"] == "offered"
    return offered and pull["state"] == "closed" and not pull["merged_at"]


def _left(why: str) -> Outcome:
    return Outcome("artifact", f"{why} The patch stays in the artifact: download it and `git apply` it.")
