"""Products of few rows: right and timed on a GPU."""

import pytest
from loading import pinned

from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

PROJECT = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda rows={rows}: torch.randn(rows, {length}), dtypes=("{dtype}",), dims={{"rows": (1, 64)}})
class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear({length}, 4096, bias=False)
        self.key = nn.Linear({length}, 1024, bias=False)
        self.value = nn.Linear({length}, 1024, bias=False)

    def forward(self, x):
        return self.query(x).relu(), self.key(x) * 0.5, self.value(x) + 1.0


@triton_candidate(inputs=lambda: torch.randn({rows}, {length}), dtypes=("{dtype}",))
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({length}, 14000, bias=False)

    def forward(self, x):
        return self.linear(x).relu()
"""


@pytest.fixture(scope="module")
def judge():
    with Judge(find_environment("cuda")) as judge:
        yield judge


@pytest.mark.parametrize(
    ("rows", "length", "dtype"), [(64, 4096, "bfloat16"), (5, 4096, "float16"), (1, 2000, "bfloat16")]
)
def test_a_product_of_few_rows_is_right(rows, length, dtype, judge, tmp_path) -> None:
    path = tmp_path / "products.py"
    path.write_text(PROJECT.format(rows=rows, length=length, dtype=dtype))
    for target in scan_file(path, tmp_path).targets:
        live = pinned(tmp_path, target)
        written = InductorGenerator(judge.environment.arch).generate(
            [Request(target, (0,), lambda live=live: live)]
        )
        [(_, completion)] = written
        assert completion.note == "products of few rows as kernels"
        verdict = judge.judge(render(completion, live, on_gpu=True), Criteria(live, min_speedup=0.0))
        assert verdict.correct, verdict.reason
        assert verdict.speedup_compiled is not None
