"""A developer's clone, GitHub, and the jobs that run there."""

from hosting import NAME, TOKEN, Hosting, git
from verified import artifact, project

from pytest_kernelllm.suggest.github.artifact import read_artifact
from pytest_kernelllm.suggest.github.client import GitHub
from pytest_kernelllm.suggest.github.context import Source, WorkflowJob
from pytest_kernelllm.suggest.github.flow import suggest
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.web.secret import Secret

BRANCH = "kernelllm/suggestions/main"


class Clock:
    """Time that only passes when somebody sleeps."""

    def __init__(self):
        self.time, self.slept = 1_000_000.0, []

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds

    def chance(self):
        return 1.0


class World:
    """A developer's clone, GitHub, and jobs."""

    def __init__(self, folder):
        self.folder = folder
        self.hosting = Hosting(folder / "hosting")
        self.clone = project(folder / "clone")
        git(self.clone, "push", "-q", str(self.hosting.bare), "main")
        self.clock = Clock()
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
