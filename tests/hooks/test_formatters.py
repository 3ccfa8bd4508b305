"""A formatter's hook and ``kernelllm check`` in one repository: they agree, and an edit is still seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hook_project import KERNEL, edit, lay_out

FORMATTERS = {
    "ruff": ["ruff format .", "ruff check --fix --select E,F,I,W,B,UP ."],
    "ruff, short lines": ["ruff format --line-length 60 .", "ruff check --fix --select ALL --exit-zero ."],
    "black": ["black -q ."],
    "black, long lines": ["black -q --line-length 120 --skip-string-normalization ."],
}

CONFIGURATION = """repos:
- repo: local
  hooks:
{}  - id: kernelllm-check
    name: kernelllm check
    entry: python -m pytest_kernelllm_hooks.check --all
    language: system
    pass_filenames: false
"""


def hook(number: int, entry: str) -> str:
    settings = {
        "id": f"formatter-{number}",
        "name": entry,
        "entry": f"python -m {entry}",
        "language": "system",
    }
    lines = [f"{key}: {value}" for key, value in settings.items()]
    return "".join(
        f"  {'- ' if not i else '  '}{line}\n" for i, line in enumerate([*lines, "pass_filenames: false"])
    )


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_formatter_and_check_converge(tmp_path: Path, new_repository, formatter: str) -> None:
    lay_out(tmp_path)
    entries = "".join(hook(number, entry) for number, entry in enumerate(FORMATTERS[formatter]))
    (tmp_path / ".pre-commit-config.yaml").write_text(CONFIGURATION.format(entries))
    (tmp_path / ".gitignore").write_text("*_cache/\n")
    repository = new_repository()
    born = (tmp_path / KERNEL).read_bytes()

    for _ in range(3):  # a linter's fixes may have to be formatted
        done = repository.run("pre-commit", "run", "--all-files")
        assert "kernelllm check" in done.stdout and "was edited" not in done.stdout, done.stdout
        repository.must("git", "add", "-A")
        if done.returncode == 0:
            break
    assert done.returncode == 0 and (tmp_path / KERNEL).read_bytes() != born, done.stdout

    edit(tmp_path / KERNEL, "+ 1", "+ 2")
    repository.must("git", "add", "-A")
    after = repository.run("pre-commit", "run", "--all-files")
    assert after.returncode == 1 and "was edited after it was generated" in after.stdout
