"""Where a job runs and what was verified, from what the runner says; nothing of it comes from the artifact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_kernelllm.suggest.github.errors import Refused

BRANCHES = "kernelllm/suggestions/"
"""What the branches of suggestions begin with."""


@dataclass(frozen=True)
class Source:
    """The commit that was verified."""

    branch: str
    """It stands at the head of this branch; of the fork's, for a fork."""
    commit: str
    fork: str | None = None
    """Owner of the fork that it came from."""
    pull_request: bool = False
    """Whether it was verified for a pull request."""


@dataclass(frozen=True)
class Job:
    """A job on a runner."""

    event: str
    repository: str
    """``owner/name``."""
    api: str
    server: str
    run: str
    """Address of the run whose job this is."""
    verified: str
    """Address of the run that verified: another one, for ``workflow_run``."""
    self_hosted: bool
    source: Source | None
    """None where the event names no branch."""

    @property
    def owner(self) -> str:
        """The account that the repository belongs to."""
        return self.repository.partition("/")[0]


def read_job(environ: Mapping[str, str]) -> Job:
    """The job that this process is a step of.

    Args:
        environ: with the ``GITHUB_`` and ``RUNNER_`` variables of the runner.

    Raises:
        Refused: they are missing or broken.
    """
    repository = environ.get("GITHUB_REPOSITORY", "")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise Refused("GITHUB_REPOSITORY names no repository; this runs as a step of a GitHub workflow.")
    name = environ.get("GITHUB_EVENT_NAME", "")
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Refused("GITHUB_EVENT_PATH names no event.") from None
    server = environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
    runs = f"{server}/{repository}/actions/runs/"
    verified = _get(event, "workflow_run", "id") if name == "workflow_run" else None
    try:
        source = _source(name, event, environ, repository)
    except (AttributeError, KeyError, TypeError):
        raise Refused(f"The event {name} does not have the form that GitHub describes.") from None
    return Job(
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
    """The owner of another repository; a repository that is gone may have been anybody's."""
    if home == repository:
        return None
    return str(home or "?/?").partition("/")[0]


def _get(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
