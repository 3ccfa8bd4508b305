"""What readers copy from the pages passes the linter that most of them run: ruff's default rules, and sorted imports."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_files_of_the_pages_pass_ruff_as_users_run_it(tmp_path):
    for number, page in enumerate([ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]):
        # A block that begins with its name is a file; those of one page lie in one folder.
        for block in re.findall(r"^```python\n(# [\w/]+\.py\n.*?)^```", page.read_text(), re.M | re.S):
            file = tmp_path / f"{number}_{page.stem}" / block.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block)
    assert len(list(tmp_path.rglob("*.py"))) >= 5
    for folder in tmp_path.iterdir():
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--extend-select=I", "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{folder.name}: {done.stdout}"
