"""docs/how-to/pre-commit.md says what the manifest and the commands say: every hook and option, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from hook_repository import CHECKOUT

PAGE = (CHECKOUT / "docs" / "how-to" / "pre-commit.md").read_text()
MANIFEST = {hook["id"]: hook for hook in yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text())}
SECTIONS = dict(zip(*[iter(re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row for row in lines if row[0].startswith("`")]


def test_every_hook_stands_in_the_table_with_its_stages_and_language() -> None:
    head = PAGE[: PAGE.index("## ")]
    listed = {row[0].strip("`"): (row[2].split(", "), row[3]) for row in rows(head)}
    assert listed == {name: (hook["stages"], hook["language"]) for name, hook in MANIFEST.items()}


def test_every_hook_has_a_section() -> None:
    assert list(SECTIONS) == list(MANIFEST)


@pytest.mark.parametrize("hook", MANIFEST)
def test_every_option_of_a_hook_is_in_its_section(hook) -> None:
    module = f"pytest_kernelllm_hooks.{hook.removeprefix('kernelllm-')}"
    shown = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True
    ).stdout
    offered = set(re.findall(r"^  (--[\w-]+)", shown, flags=re.MULTILINE))
    documented = {match[0] for row in rows(SECTIONS[hook]) if (match := re.match(r"--[\w-]+", row[0][1:]))}
    assert documented == offered


def test_the_entry_points_are_those_that_are_installed() -> None:
    import tomllib

    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {hook["entry"].split()[0] for hook in MANIFEST.values()} == set(scripts) - {"kernelllm"}


def test_the_configurations_shown_are_valid(tmp_path) -> None:
    shown = re.findall(r"```yaml\n(.+?)```", PAGE, flags=re.DOTALL)
    assert len(shown) == 2
    whole = shown[0]
    for number, text in enumerate((whole, whole[: whole.index("      - id")] + shown[1])):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", str(file)], check=True)
        [repository] = yaml.safe_load(text)["repos"]
        assert {hook["id"] for hook in repository["hooks"]} <= set(MANIFEST)
