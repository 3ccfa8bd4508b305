"""The sessions in docs/suggestions.md, executed: real judging, real git, the output as the page has it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from adoptable import git
from projects import CANDIDATES, lay_out

PAGE = (Path(__file__).parents[2] / "docs" / "suggestions.md").read_text()

SETTINGS = '[tool.kernelllm]\ngenerator = "files"\ncandidates_dir = "candidates"\nsamples = 1\n'


def sessions() -> list[tuple[str, str]]:
    """Command and output, in the page's order."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    return [
        (c, out) for block in blocks for c, out in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
    ]


def numberless(text: str) -> str:
    """Without hashes, versions and measured values, which depend on the machine."""
    return re.sub(r"\b[0-9a-f]{64}\b|\b\d[\w.+-]*", "N", text)


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    lay_out(tmp_path, {"Scale_0.py": CANDIDATES["Scale_0.py"]})
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
    }
    commands = sessions()
    assert len(commands) == 8
    for command, wanted in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (command, numberless(done.stdout + done.stderr)) == (command, numberless(wanted))
