"""What a sentence tells people to run survives a paste."""

import re
import shlex
from pathlib import Path

from projects import lay_out

from pytest_kernelllm.core.words import command, from_here

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(
    r'f".*(?:pytest --kernelllm|kernelllm (?:apply|revert|verify|scan|store|generate|export|doctor|bench)|hf download|patch -p1)'
    r"""[^"`.;]*\{(?!command|shlex)"""
)


def test_commands_are_quoted_and_paths_begin_where_the_user_stands(tmp_path, monkeypatch):
    (tmp_path / "a b" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a b" / "work")
    identity = "src/my layers.py::Scale::correctness[files-1]"
    shown = command("pytest", "--kernelllm", from_here(tmp_path, identity))
    assert shown.startswith("`pytest --kernelllm '../../src/my layers.py::Scale")
    assert shlex.split(shown.strip("`"))[2] == f"../../{identity}"


def test_no_sentence_puts_a_name_into_a_command_as_it_is():
    places = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in ("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm", "hooks")
        for file in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if COMMAND.search(line) and "options.action" not in line
    ]
    assert places == []


def test_the_hook_too(tmp_path, monkeypatch):
    from pytest_kernelllm_hooks.findings import findings

    lay_out(tmp_path, {})
    layers = tmp_path / "layers.py"
    (tmp_path / "my layers.py").write_text(
        layers.read_text().replace("dims={", 'kernel="_triton.scale", dims={')
    )
    (tmp_path / "_triton").mkdir()
    (tmp_path / "_triton" / "scale.py").write_text("# by hand\n")
    monkeypatch.chdir(tmp_path)
    said = "\n".join(str(each) for each in findings([tmp_path / "my layers.py"], tmp_path))
    assert "run `pytest --kernelllm-only 'my layers.py'` for a new one" in said
