"""The search's moves: whatever it launches gives the same numbers, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fusing import errors, inductor, live

from kernelllm_judge.core.records import Candidate
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.render import render
from pytest_kernelllm.generate.inductor.variants import VARIANTS
from pytest_kernelllm.generate.search.case_search import neighbours

pytestmark = pytest.mark.slow

TARGETS = ("CrossEntropy", "Transpose", "Pooled")
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2}


def moved(name: str) -> dict[str, tuple[str, Candidate]]:
    """All candidates one move away from the first, and all that Inductor has besides."""
    written = inductor(name, len(VARIANTS))
    texts = [each.text for each in written]
    first = sections.read(texts[0])
    others = [sections.read(text)[0] for text in texts[1:]]
    for kernel in first[0].launches:
        texts += [sections.write([step, *first[1:]]) for step in neighbours(first[0], kernel, others)]
    distinct = {render(replace(written[0], text=text), live(name)).source for text in texts}
    return {
        f"{name}_{number}": (name, Candidate(live(name).target.id, source, "inductor"))
        for number, source in enumerate(sorted(distinct))
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    candidates = {key: each for name in TARGETS for key, each in moved(name).items()}
    assert len(candidates) > 4 * len(TARGETS)
    return errors(tmp_path_factory.mktemp("moves"), candidates)


@pytest.mark.parametrize("name", TARGETS)
def test_every_move_is_right(results: dict[str, Any], name: str) -> None:
    found = {key: value for key, value in results.items() if key.startswith(f"{name}_")}
    assert len(found) > 3
    for key, error in found.items():
        assert isinstance(error, float), f"{key}: {error}"
        assert error <= TOLERANCE["bfloat16" if "bfloat16" in key else "float32"], key
