from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm_judge.core.records import Completion, Target
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.files import FilesGenerator
from pytest_kernelllm.generate.protocol import GenerateError, Request
from pytest_kernelllm.session.generators import Surroundings, choose

MODEL = "class ModelNew: ...\n"
MODULE = "def forward(self, x):\n    return x\n"


def request(name: str = "Norm", samples: int = 20, first: int = 0) -> Request:
    def live() -> LiveTarget:
        raise AssertionError("files need no module")

    return Request(
        Target("layers.py", name, 1, "0" * 64, "decorator"), tuple(range(first, first + samples)), live
    )


def completions(folder: Path, **changes: int | str) -> list[Completion]:
    return [c for _, c in FilesGenerator(folder).generate([request(**changes)])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Norm").mkdir()
    for name in (
        "Norm.py",
        "Norm_10.py",
        "Norm_2.txt",
        "Norm/b.md",
        "Norm/a.py",
        "Norm2.py",
        "Norm.json",
        "Other.py",
    ):
        (tmp_path / name).write_text(MODEL)
    return tmp_path


def test_files_of_a_class_come_in_natural_order(folder: Path) -> None:
    found = completions(folder)
    assert [c.note for c in found] == ["Norm.py", "Norm/a.py", "Norm/b.md", "Norm_2.txt", "Norm_10.py"]
    assert [c.index for c in found] == [0, 1, 2, 3, 4]
    assert {c.format for c in found} == {"modelnew"}


def test_samples_and_first_pick_a_window(folder: Path) -> None:
    assert [(c.index, c.note) for c in completions(folder, samples=2, first=1)] == [
        (1, "Norm/a.py"),
        (2, "Norm/b.md"),
    ]
    assert completions(folder, first=5) == []


def test_a_class_without_files_gets_one_reason(folder: Path) -> None:
    (only,) = completions(folder, name="Conv")
    assert only.text == "" and "Conv.py, Conv_*.py or Conv/*.py" in only.note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MODULE, "kernel_module"),
        (MODULE + MODEL, "modelnew"),
        (f"```python\n{MODULE}```", "kernel_module"),
        ("nothing", "modelnew"),
    ],
)
def test_the_format_depends_on_the_content(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "Norm.md").write_text(text)
    assert [c.format for c in completions(tmp_path)] == [expected]


def test_bytes_that_are_not_text_are_a_reason(tmp_path: Path) -> None:
    (tmp_path / "Norm.py").write_bytes(b"\xff\xfe")
    (only,) = completions(tmp_path)
    assert only.text == "" and only.note == "Norm.py is not UTF-8 text."


def test_identity_follows_names_and_bytes(folder: Path) -> None:
    seen = {FilesGenerator(folder).identity()}
    (folder / "Norm.json").write_text("not a candidate")
    assert FilesGenerator(folder).identity() in seen
    (folder / "Norm.py").write_text(MODULE)
    seen.add(FilesGenerator(folder).identity())
    (folder / "Norm.py").rename(folder / "Norm_1.py")
    seen.add(FilesGenerator(folder).identity())
    assert len(seen) == 3


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GenerateError, match=r"no folder .*nowhere.*candidates_dir"):
        FilesGenerator(tmp_path / "nowhere")


def test_settings_name_the_generators(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    settings = Settings(generator=" files, files", candidates_dir="kernels")
    (only,) = choose(settings, Surroundings(tmp_path)).generators
    assert only.name == "files"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(generator="inductor,magic"), "no generator `magic`: .*inductor, files"),
        (Settings(generator=" , "), "No generator is named"),
        (Settings(generator="files"), "set `candidates_dir`"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path: Path, settings: Settings, message: str) -> None:
    with pytest.raises(GenerateError, match=message):
        choose(settings, Surroundings(tmp_path))
