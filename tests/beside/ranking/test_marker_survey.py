"""A survey of models: each class of modules with headroom gets a marker that the judge can load, or a true sentence."""

from __future__ import annotations

import re
from functools import cache

import pytest
from library_models import MODELS, TRANSFORMERS, installed

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

LEFT_OUT = (
    r"(its marker leaves out `\w+`, which is an? (DynamicCache|EncoderDecoderCache|dtype), "
    r"so kernels will not run in calls like the example's)?"
)
"""What a marker's reason may be: the examples name no cache, so that the models make one, as they do for most people."""


@cache
def ranked(name: str) -> Ranking:
    return rank(MODELS[name], count=True)


@pytest.mark.parametrize("name", installed())
def test_a_class_with_headroom_gets_a_marker_or_a_true_sentence(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = ranked(name)
    assert found.worth
    for row in found.worth:
        cls = row.cls.rpartition(".")[2]
        assert row.marker != (cls in SENTENCES)
        assert re.fullmatch(SENTENCES.get(cls, LEFT_OUT), row.reason), row.reason
    file = tmp_path / f"markers_of_{name}.py"
    found.write_markers(file)
    scanned = scan_file(file, tmp_path)
    assert scanned.problems == ()
    marked = {row.cls.rpartition(".")[2] for row in found.worth if row.marker}
    assert {target.name for target in scanned.targets} == marked
    for target in scanned.targets:
        assert load_target(tmp_path, target).cases


def test_nine_of_ten_classes_with_headroom_get_a_marker(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    marked: dict[tuple[str, str], bool] = {}
    for name in installed():
        for row in ranked(name).worth:
            marked[name, row.cls] = marked.get((name, row.cls), False) or row.marker
    assert len(TRANSFORMERS) >= 20 and len(marked) > 80
    assert sum(marked.values()) >= 0.9 * len(marked)
