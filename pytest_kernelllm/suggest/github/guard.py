"""Refuses jobs in which untrusted code could reach a secret, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_kernelllm.suggest.github.context import WorkflowJob
from pytest_kernelllm.suggest.github.credentials import in_environment, in_git, in_home
from pytest_kernelllm.suggest.github.errors import SuggestionRefused

ADVICE = "docs/how-to/github-action.md describes how to set up the two jobs."


def check_verify(job: WorkflowJob, environ: Mapping[str, str], folder: Path, token: bool) -> None:
    """Refuses to run a pull request's code where it could reach a secret or a token with write permission.

    Raises:
        SuggestionRefused: states what is wrong and what to do.
    """
    if token:
        raise SuggestionRefused(
            "mode: verify runs code of the branch it verifies and needs no token; leave `token` out here "
            f"and give it to mode: suggest, in a job of its own. {ADVICE}"
        )
    if job.event in ("pull_request_target", "workflow_run"):
        raise SuggestionRefused(
            f"mode: verify does not run on {job.event}: there the job has the secrets, the caches and the writing "
            f"token of your own branches while it runs the code of a pull request. Use `on: pull_request`. {ADVICE}"
        )
    if job.source is None or job.source.fork is None:
        return
    if secrets := in_environment(environ):
        raise SuggestionRefused(
            f"This pull request comes from a fork, and its code would find {', '.join(secrets)} in its environment. "
            f"Give the verify job no secrets. {ADVICE}"
        )
    if found := [*in_git(folder, job.server), *in_home(environ)]:
        raise SuggestionRefused(
            f"This pull request comes from a fork, and its code would find {'; '.join(found)}. Set "
            f"`persist-credentials: false` for actions/checkout, and keep no logins on this runner. {ADVICE}"
        )


def check_suggest(job: WorkflowJob) -> None:
    """Refuses to use a token with write permission on a machine where untrusted code may have run.

    Raises:
        SuggestionRefused: states what is wrong and what to do.
    """
    if job.event == "pull_request_target":
        raise SuggestionRefused(
            "mode: suggest does not run on pull_request_target, where one careless checkout exposes the token to untrusted code. "
            f"Use `on: workflow_run` after the verifying workflow. {ADVICE}"
        )
    if job.source is not None and job.source.fork is not None and job.self_hosted:
        raise SuggestionRefused(
            "The verified commit comes from a fork and this is a self-hosted runner: what the fork's code left behind on "
            f"such a machine could use this job's token. Run mode: suggest with `runs-on: ubuntu-latest`. {ADVICE}"
        )
