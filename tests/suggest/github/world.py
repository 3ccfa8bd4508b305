"""A developer's clone, GitHub, and the jobs that run there."""

import os
import subprocess
import sys

from hosting import NAME, TOKEN, Hosting
from repository import git
from serving import FakeClock
from verified import artifact, event, project

from pytest_kernelllm.suggest.github.artifact import read_artifact
from pytest_kernelllm.suggest.github.client import GitHub
from pytest_kernelllm.suggest.github.context import Source, WorkflowJob
from pytest_kernelllm.suggest.github.flow import suggest
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.web.secret import Secret

BRANCH = "kernelllm/suggestions/main"


def pushed(hosting, folder, **more):
    """The variables of a hosted job after a push to ``main``; the event's file lies in the folder."""
    return {
        "INPUT_TOKEN": TOKEN,
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": event(folder, {}),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_RUN_ID": "7",
        "GITHUB_SHA": hosting.heads()["main"],
        "GITHUB_SERVER_URL": hosting.url,
        "GITHUB_API_URL": f"{hosting.url}/api",
        "RUNNER_ENVIRONMENT": "github-hosted",
        **more,
    }


def propose(world, artifact, folder, **more):
    """The step in a process of its own, as on a runner; writes ``output``, ``summary`` and ``scratch`` in the folder."""
    (folder / "scratch").mkdir()
    environ = pushed(
        world.hosting,
        folder,
        PATH=os.environ["PATH"],
        TMPDIR=str(folder / "scratch"),
        GITHUB_OUTPUT=str(folder / "output"),
        GITHUB_STEP_SUMMARY=str(folder / "summary"),
    )
    command = [
        sys.executable,
        "-m",
        "pytest_kernelllm.commands.suggest",
        "propose",
        "--artifact",
        str(artifact),
    ]
    return subprocess.run(command, env=environ | more, capture_output=True, text=True, check=False)


class World:
    """A developer's clone, GitHub, and jobs."""

    def __init__(self, folder):
        self.folder = folder
        self.hosting = Hosting(folder / "hosting")
        self.clone = project(folder / "clone")
        git(self.clone, "push", "-q", str(self.hosting.bare), "main")
        self.clock = FakeClock()
        self.jobs = 0

    def job(self, source):
        url = self.hosting.url
        run = f"{url}/{NAME}/actions/runs/7"
        return WorkflowJob("push", NAME, f"{url}/api", url, run, run, self_hosted=False, source=source)

    def source(self, branch="main", **more):
        return Source(branch, self.hosting.heads()[branch], **more)

    def artifact(self, below=".", **options):
        """What a job leaves behind whose project root is the folder ``below`` the top of the repository."""
        self.jobs += 1
        return artifact(self.clone / below, self.folder / f"job{self.jobs}" / "artifact", **options)

    def suggest(self, folder, source=None, token=TOKEN, **options):
        self.jobs += 1
        job = self.job(source or self.source())
        secret = Secret(token) if token else None
        git_there = Git(self.folder / f"scratch{self.jobs}", f"{job.server}/{NAME}.git", secret)
        api = GitHub(job.api, NAME, secret, self.clock) if secret else None
        return suggest(job, read_artifact(folder), git_there, api, **options)

    def pushes(self, message):
        """The developer commits the clone as it is, and pushes."""
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-q", "-m", message)
        git(self.clone, "push", "-q", str(self.hosting.bare), "main")

    def person_commits(self, branch, text="# by hand\n"):
        """Somebody adds a commit to a branch of the repository."""
        work = self.folder / f"person{self.jobs}"
        git(self.folder, "clone", "-q", "-b", branch, str(self.hosting.bare), str(work))
        file = work / "pkg" / "layers.py"
        file.write_text(file.read_text() + text)
        git(work, "commit", "-q", "-a", "-m", "by hand")
        git(work, "push", "-q", "origin", f"HEAD:{branch}")
        return git(work, "rev-parse", "HEAD")
