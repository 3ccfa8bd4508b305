"""Matrix products and convolutions from Inductor's templates: right and timed on a GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from loading import pinned

from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

PROJECT = Path(__file__).parents[1] / "data" / "templates"
TARGETS = {target.name: target for target in scan_file(PROJECT / "products.py", PROJECT).targets}
NOTES = (
    "matrix products and convolutions as kernels",
    "depthwise convolutions as kernels",
    "float32 products on tensor cores",
    "float32 products on tensor cores, in smaller blocks",
    "float32 convolutions on tensor cores",
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_environment("cuda")) as judge:
        yield judge


@pytest.mark.parametrize("name", TARGETS)
def test_a_product_is_right_and_its_speed_is_known_against_both_baselines(name: str, judge: Judge) -> None:
    live = pinned(PROJECT, TARGETS[name])
    generator = InductorGenerator(judge.environment.arch)
    written = generator.generate([Request(live.target, tuple(range(6)), lambda: live)])
    made = [c for _, c in written if c.note in NOTES]
    assert made
    for completion in made:
        verdict = judge.judge(render(completion, live, on_gpu=True), Criteria(live, min_speedup=0.0))
        assert verdict.correct, f"{completion.note}: {verdict.reason}"
        assert verdict.speedup is not None and verdict.speedup_compiled is not None
