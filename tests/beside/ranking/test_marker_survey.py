"""A survey of models: each class of modules with headroom gets a marker that the judge can load, or a true sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from library_models import DIFFUSERS, MODELS, TIMM, TRANSFORMERS

from kernelllm_judge.target.live import load_target
from pytest_kernelllm import rank
from pytest_kernelllm.beside.ranking.result import Ranking
from pytest_kernelllm.discover.scan import scan_file

pytestmark = pytest.mark.slow

SENTENCES = {
    f"{name}Model": "cannot be marked: it returns a DynamicCache"
    for name in ("Llama", "Qwen3", "Gemma3Text", "Phi3", "Mixtral", "Qwen3Moe", "DeepseekV3", "GPT2")
}
"""By class, why it cannot be marked. Every other class gets a marker."""

LEFT_OUT = r"(its marker leaves out `\w+`, which is a (DynamicCache|EncoderDecoderCache|dtype), so kernels will not run .*)?"
"""What a marker's reason may be: the example calls the model with a cache, as people do who name none."""

INSTALLED = {"timm": TIMM, "diffusers": DIFFUSERS}


def ranked(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ranking:
    for package, models in INSTALLED.items():
        if name in models:
            pytest.importorskip(package, exc_type=(ImportError, RuntimeError))
    monkeypatch.chdir(folder)
    return rank(MODELS[name], count=True)


@pytest.fixture(scope="module")
def classes() -> Iterator[dict[str, bool]]:
    """Whether a class got a marker, by model and class; at least nine of ten do."""
    found: dict[str, bool] = {}
    yield found
    assert sum(found.values()) >= 0.9 * len(found)


@pytest.mark.parametrize("name", MODELS)
def test_a_class_with_headroom_gets_a_marker_or_a_true_sentence(
    name: str, classes: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ranked(name, tmp_path, monkeypatch)
    assert found.worth
    for row in found.worth:
        cls = row.cls.rpartition(".")[2]
        assert row.marker != (cls in SENTENCES)
        assert re.fullmatch(SENTENCES.get(cls, LEFT_OUT), row.reason)
        classes[f"{name} {cls}"] = row.marker
    file = tmp_path / f"markers_of_{name}.py"
    found.write_markers(file)
    scanned = scan_file(file, tmp_path)
    assert scanned.problems == ()
    marked = {row.cls.rpartition(".")[2] for row in found.worth if row.marker}
    assert {target.name for target in scanned.targets} == marked
    for target in scanned.targets:
        assert load_target(tmp_path, target).cases


def test_the_survey_has_twenty_models_whatever_is_installed() -> None:
    assert len(TRANSFORMERS) >= 20
