"""Sessions that a page of the docs shows, executed in the page's order."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTEST_ADDOPTS": "",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


@dataclass(frozen=True)
class Step:
    """A file of the page, or a command with what it prints."""

    name: str
    text: str
    is_file: bool = False


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block with a language, directives aside."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        yield Block(language, text)


def steps(page: str) -> list[Step]:
    """Blocks that begin with ``# path/name.py`` (or another ending) are files; ``console`` blocks hold commands."""
    found = []
    for block in blocks(page):
        if block.language == "console":
            pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
            found += [Step(command, printed) for command, printed in pairs]
        elif name := re.match(r"# ([\w/]+\.\w+)\n", block.text):
            found.append(Step(name[1], block.text, is_file=True))
    return found


def numberless(text: str) -> str:
    """Without hashes, versions and measured values, which depend on the machine, and without the folders of this one."""
    text = re.sub(r" \(\d+:\d\d:\d\d\)", "", text)  # pytest's, after a minute
    text = re.sub(
        r"^kernelllm: \d+ s: .*\n", "", text, flags=re.MULTILINE
    )  # progress, where the machine is busy
    text = re.sub(r"\b[0-9a-f]{12,64}\b|\b\d[\w.+-]*", "N", text)
    return re.sub(r"(?<!\S)(/\S*|…)(?=/\.kernelllm)", "…", text)


def page(name: str) -> str:
    """A page of the docs."""
    return (DOCS / name).read_text()


def replay(text: str, folder: Path, **environ: str) -> int:
    """Write a page's files into a folder, run its commands there, and compare what they print.

    Returns:
        How many commands the page has.
    """
    commands = 0
    for step in steps(text):
        if step.is_file:
            (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.name).write_text(step.text)
            continue
        done = subprocess.run(
            ["bash", "-c", step.name],
            cwd=folder,
            env={k: v for k, v in os.environ.items() if k != "COLUMNS"} | ENVIRONMENT | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = done.stdout
        shown = f"$ {step.name}\nprinted\n{printed}\nand not, as the page has it,\n{step.text}"
        assert numberless(printed) == numberless(step.text), shown
        commands += 1
    return commands
