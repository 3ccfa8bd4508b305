"""The hooks under prek, which reads pre-commit's configuration: it passes and fails alike."""

import re
import shutil

import pytest
from hook_project import KERNEL, edit, lay_out

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prek") is None, reason="prek is not installed"),
]


def test_a_commit_passes_and_an_edited_kernel_does_not(tmp_path, hooks, new_repository, environment) -> None:
    lay_out(tmp_path)
    revision = hooks.must("git", "rev-parse", "HEAD").strip()
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks.path}\n    rev: {revision}\n    hooks:\n"
        "      - id: kernelllm-check\n        language: system\n"
    )
    environment["PREK_HOME"] = environment["PRE_COMMIT_HOME"]
    repository = new_repository()
    repository.must("prek", "install")
    edit(repository.path / "layers.py", "add one.", "add 1.")
    done = repository.run("git", "commit", "-q", "-a", "-m", "wording")
    assert done.returncode == 0 and re.search(r"kernelllm check\.+Passed", done.stdout)
    edit(repository.path / KERNEL, "    return out", "    return out + 0")
    done = repository.run("git", "commit", "-q", "-a", "-m", "a tweak")
    assert done.returncode == 1 and "was edited after it was generated" in done.stdout
