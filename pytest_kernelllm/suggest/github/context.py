"""Reads from the runner's variables where a job runs and what was verified; nothing comes from the artifact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_kernelllm.suggest.github.errors import SuggestionRefused

BRANCHES = "kernelllm/suggestions/"
"""Prefix of the branches with suggestions."""


@dataclass(frozen=True)
class Source:
    """The commit that was verified."""

    branch: str
    """The branch whose head it is; a branch of the fork, for a fork."""
    commit: str
    fork: str | None = None
    """Owner of the fork that it comes from."""
    pull_request: bool = False
    """Whether it was verified for a pull request."""


@dataclass(frozen=True)
class WorkflowJob:
    """A job on a runner."""

    event: str
    repository: str
    """``owner/name``."""
    api: str
    server: str
    run: str
    """Address of the workflow run that this job belongs to."""
    verified: str
    """Address of the workflow run that verified; it differs from ``run`` for the event ``workflow_run``."""
    self_hosted: bool
    source: Source | None
    """None if the event names no branch."""

    @property
    def owner(self) -> str:
        """The account that the repository belongs to."""
        return self.repository.partition("/")[0]


def read_job(environ: Mapping[str, str]) -> WorkflowJob:
    """Returns the job that this process is a step of.

    Raises:
        SuggestionRefused: a variable is missing or malformed.
    """
    repository = environ.get("GITHUB_REPOSITORY", "")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise SuggestionRefused(
            "GITHUB_REPOSITORY names no repository; this runs as a step of a GitHub workflow."
        )
    name = environ.get("GITHUB_EVENT_NAME", "")
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SuggestionRefused("GITHUB_EVENT_PATH does not name a file with an event.") from None
    server = environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
    runs = f"{server}/{repository}/actions/runs/"
    verified = _get(event, "workflow_run", "id") if name == "workflow_run" else None
    try:
        source = _source(name, event, environ, repository)
    except (AttributeError, KeyError, TypeError):
        raise SuggestionRefused(f"The event {name} does not have the form that GitHub documents.") from None
    return WorkflowJob(
        event=name,
        repository=repository,
        api=environ.get("GITHUB_API_URL", "https://api.github.com"),
        server=server,
        run=runs + environ.get("GITHUB_RUN_ID", ""),
        verified=runs + str(verified or environ.get("GITHUB_RUN_ID", "")),
        self_hosted=environ.get("RUNNER_ENVIRONMENT") != "github-hosted",
        source=source,
    )


def _source(name: str, event: Any, environ: Mapping[str, str], repository: str) -> Source | None:
    if name in ("pull_request", "pull_request_target"):
        head = event["pull_request"]["head"]
        home = _get(head, "repo", "full_name")
        return Source(head["ref"], head["sha"], _fork(home, repository), pull_request=True)
    if name == "workflow_run":
        run = event["workflow_run"]
        home = _get(run, "head_repository", "full_name")
        if not run["head_branch"]:
            return None
        asked = run["event"] == "pull_request"
        return Source(run["head_branch"], run["head_sha"], _fork(home, repository), pull_request=asked)
    ref = environ.get("GITHUB_REF", "")
    if not ref.startswith("refs/heads/"):
        return None
    return Source(ref.removeprefix("refs/heads/"), environ.get("GITHUB_SHA", ""))


def _fork(home: Any, repository: str) -> str | None:
    """The owner of another repository; a deleted repository may have been anybody's, so it counts as a fork."""
    if home == repository:
        return None
    return str(home or "?/?").partition("/")[0]


def _get(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
