"""The hooks under the real pre-commit, in real git repositories: install, run, fail, fix, pass."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from hook_project import KERNEL, edit, lay_out
from hook_repository import CHECKOUT, Repository

pytestmark = pytest.mark.slow

WITHOUT_INSTALL = "language: system"
"""In a user's own configuration: take the hook from the project's environment."""


@pytest.fixture
def project(tmp_path, hooks, new_repository) -> Callable[..., Repository]:
    """Makes a user's repository: an adopted kernel, and the hooks with what is said of each."""

    def new(**configured: str) -> Repository:
        lay_out(tmp_path)
        lines = [
            f"repos:\n  - repo: {hooks.path}\n    rev: {hooks.must('git', 'rev-parse', 'HEAD')}    hooks:\n"
        ]
        for name, more in configured.items():
            lines.append(f"      - id: kernelllm-{name}\n" + (f"        {more}\n" if more else ""))
        (tmp_path / ".pre-commit-config.yaml").write_text("".join(lines))
        (tmp_path / ".gitignore").write_text(".kernelllm/\n__pycache__/\n.pytest_cache/\n")
        return new_repository()

    return new


def commit(repository: Repository, message: str):
    return repository.run("git", "commit", "-q", "-a", "-m", message)


def test_the_manifest_is_valid(environment) -> None:
    Repository(CHECKOUT, environment).must("pre-commit", "validate-manifest", ".pre-commit-hooks.yaml")


def test_a_commit_passes_fails_is_mended_and_passes(project) -> None:
    repository = project(check=WITHOUT_INSTALL)
    repository.must("pre-commit", "install")
    edit(repository.path / "layers.py", "add one.", "add 1.")
    done = commit(repository, "wording")
    assert done.returncode == 0 and re.search(r"kernelllm check\.+Passed", done.stdout), done.stdout

    edit(repository.path / KERNEL, "    return out", "    return out + 0")
    assert (edited := commit(repository, "a tweak")).returncode == 1
    repository.must("git", "checkout", "-q", "HEAD", "--", KERNEL)
    edit(repository.path / "layers.py", "self.weight + 1", "self.weight + 3")
    assert (stale := commit(repository, "another constant")).returncode == 1
    assert edited.stdout + stale.stdout == _documented_output()

    edit(repository.path / "layers.py", ', kernel="_triton.scale"', "")
    assert commit(repository, "back to the original").returncode == 0
    subjects = repository.must("git", "log", "--format=%s").split("\n")
    assert subjects == ["back to the original", "wording", "start", ""]


def _documented_output() -> str:
    """What the two refused commits print in docs/how-to/pre-commit.md, with the blank line that ends pre-commit's report."""
    page = (CHECKOUT / "docs" / "how-to" / "pre-commit.md").read_text()
    session = page[page.index("```console\n") + len("```console\n") :].partition("```")[0]
    printed = re.split(r"^\$ .*\n", session, flags=re.MULTILINE)
    return "".join(f"{part}\n" for part in printed if part)


def test_only_changed_files_are_looked_at(project) -> None:
    repository = project(check=WITHOUT_INSTALL)
    edit(repository.path / KERNEL, "    return out", "    return out + 0")
    repository.must("git", "commit", "-q", "-a", "-m", "before there was a hook")
    repository.must("pre-commit", "install")
    (repository.path / "plain.py").write_text("x = 1\n")
    (repository.path / "notes.md").write_text("# triton_candidate\n")
    repository.must("git", "add", "plain.py", "notes.md")
    assert commit(repository, "elsewhere").returncode == 0
    assert repository.run("pre-commit", "run", "--all-files").returncode == 1


def test_what_a_commit_only_removes_is_looked_at(project) -> None:
    repository = project(check=WITHOUT_INSTALL)
    (repository.path / "notes.md").write_text("x\n")
    (repository.path / "plain.py").write_text("x = 1\n")
    repository.must("git", "add", "-A")
    repository.must("git", "commit", "-q", "-m", "more files")
    repository.must("pre-commit", "install")
    for name in ("notes.md", "plain.py"):
        repository.must("git", "rm", "-q", name)
        assert commit(repository, f"without {name}").returncode == 0
    repository.must("git", "rm", "-q", KERNEL)
    done = commit(repository, "without the kernel")
    assert done.returncode == 1 and "layers.py:12: Scale names the kernel _triton.scale" in done.stdout
    repository.must("git", "mv", "-f", "layers.py", "other.py")  # its marker names what is gone all the same
    assert commit(repository, "moved").returncode == 1
    edit(repository.path / "other.py", ', kernel="_triton.scale"', "")
    assert commit(repository, "without a kernel").returncode == 0


def test_a_push_is_held_up_by_a_wrong_kernel_and_by_nothing_else(project, tmp_path_factory) -> None:
    repository = project(verify="args: [--kernelllm-device=cpu, -q]")
    repository.must("pre-commit", "install", "-t", "pre-push")
    remote = tmp_path_factory.mktemp("remote")
    repository.must("git", "init", "-q", "--bare", str(remote))
    repository.must("git", "remote", "add", "origin", str(remote))
    repository.must("git", "push", "-q", "--no-verify", "origin", "main")

    (repository.path / "plain.py").write_text("x = 1\n")
    repository.must("git", "add", "plain.py")
    repository.must("git", "commit", "-q", "-m", "no target")
    pushed = repository.run("git", "push", "origin", "main")
    assert pushed.returncode == 0 and re.search(r"kernelllm verify\.+Passed", pushed.stdout), pushed.stdout
    assert not (repository.path / ".kernelllm").exists(), "nothing was judged"

    edit(repository.path / KERNEL, "tl.load(weight_ptr + columns) + 1", "tl.load(weight_ptr + columns) + 2")
    repository.must("git", "commit", "-q", "-a", "-m", "wrong")
    pushed = repository.run("git", "push", "origin", "main")
    assert pushed.returncode == 1 and "layers.py::Scale::correctness[adopted]" in pushed.stdout, pushed.stdout
    assert "is wrong at" in pushed.stdout

    repository.must("git", "revert", "--no-edit", "HEAD")
    edit(repository.path / "layers.py", "add one.", "add 1.")
    repository.must("git", "commit", "-q", "-a", "-m", "right again")
    pushed = repository.run("git", "push", "origin", "main")
    assert pushed.returncode == 0 and re.search(r"kernelllm verify\.+Passed", pushed.stdout), pushed.stdout


def test_try_repo_takes_the_hooks_from_a_checkout(project, hooks) -> None:
    repository = project(verify="")
    command = ["pre-commit", "try-repo", str(hooks.path), "kernelllm-verify", "--hook-stage", "manual"]
    printed = repository.must(*command, "--files", ".pre-commit-config.yaml", "plain.py")
    assert re.search(r"kernelllm verify\.+\(no files to check\)Skipped", printed), printed
    (repository.path / "plain.py").write_text("x = 1\n")
    assert re.search(r"kernelllm verify\.+Passed", repository.must(*command, "--files", "plain.py"))


def _online() -> bool:
    try:
        with urllib.request.urlopen("https://pypi.org/simple/filelock/", timeout=10):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def test_pre_commit_installs_the_check_in_an_environment_of_its_own(project) -> None:
    if not _online():
        pytest.skip("PyPI cannot be reached")
    repository = project(check="")
    repository.must("pre-commit", "install", "--install-hooks")
    edit(repository.path / KERNEL, "    return out", "    return out + 0")
    done = repository.run("pre-commit", "run", "--all-files")
    assert done.returncode == 1 and "was edited after it was generated" in done.stdout, done.stdout
    repository.must("git", "checkout", "-q", "--", KERNEL)
    assert re.search(r"kernelllm check\.+Passed", repository.must("pre-commit", "run", "--all-files"))
