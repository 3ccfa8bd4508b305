"""Combinations in which a stranger's code could reach what it must not, refused before anything runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pytest_kernelllm.suggest.github.context import Job
from pytest_kernelllm.suggest.github.errors import Refused

_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|PRIVATE_KEY|STORE_KEY|CREDENTIALS)$"
)

ADVICE = "docs/how-to/github-action.md says how to set the two jobs up."


def check_verify(job: Job, environ: Mapping[str, str], folder: Path, token: bool) -> None:
    """Refuse to run a pull request's code where a token that may write, or a secret, is within its reach.

    Args:
        job: that is to verify.
        environ: what the code would find in its environment.
        folder: the checkout that it would run in.
        token: whether the action was given a token.

    Raises:
        Refused: with what is wrong and what to do.
    """
    if token:
        raise Refused(
            "mode: verify runs code of the branch it verifies and needs no token; leave `token` out here "
            f"and give it to mode: suggest, in a job of its own. {ADVICE}"
        )
    if job.event in ("pull_request_target", "workflow_run"):
        raise Refused(
            f"mode: verify does not run on {job.event}: there the job has the secrets, the caches and the writing "
            f"token of your own branches while it runs the code of a pull request. Use `on: pull_request`. {ADVICE}"
        )
    if job.source is None or job.source.fork is None:
        return
    if secrets := sorted(n for n, value in environ.items() if value and _SECRET.search(n.upper())):
        raise Refused(
            f"This pull request comes from a fork, and its code would find {', '.join(secrets)} in its environment. "
            f"Give the verify job no secrets. {ADVICE}"
        )
    if _keeps_credentials(folder):
        raise Refused(
            "This pull request comes from a fork, and actions/checkout left its token in the checkout; "
            f"set `persist-credentials: false`. {ADVICE}"
        )


def check_suggest(job: Job) -> None:
    """Refuse to hold a token that may write on a machine that a stranger's code may have prepared.

    Raises:
        Refused: with what is wrong and what to do.
    """
    if job.event == "pull_request_target":
        raise Refused(
            "mode: suggest does not run on pull_request_target, where one careless checkout gives a stranger the token. "
            f"Use `on: workflow_run` after the verifying workflow. {ADVICE}"
        )
    if job.source is not None and job.source.fork is not None and job.self_hosted:
        raise Refused(
            "The verified commit comes from a fork and this is a self-hosted runner: what the fork's code left behind on "
            f"such a machine could use this job's token. Run mode: suggest with `runs-on: ubuntu-latest`. {ADVICE}"
        )


def _keeps_credentials(folder: Path) -> bool:
    asked = [
        "git",
        "-c",
        "safe.directory=*",
        "config",
        "--includes",
        "--get-regexp",
        r"^http\..*\.extraheader$|^credential\..*\.helper$",
    ]
    try:
        found = subprocess.run(asked, cwd=folder, capture_output=True, check=False)
    except OSError:
        return False
    return found.returncode == 0 and bool(found.stdout.strip())
