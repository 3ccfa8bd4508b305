"""The skill file: what an assistant needs to know to write, judge and offer a kernel."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

NAME = "kernelllm-judge"


def skill() -> str:
    """Returns the skill's text, Markdown with a front matter."""
    return resources.files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8")


def write_skill(folder: Path) -> Path:
    """Writes the skill to a folder of its own in a folder of skills, over an older one; returns the file."""
    file = folder / NAME / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(skill(), encoding="utf-8")
    return file
