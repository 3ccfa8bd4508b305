"""The prompt for a model is the best one that its context holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_llama import save
from small_project import target_of

from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.models.generator import KernelLLMGenerator
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.prompt import LENGTHS, TEMPLATE, fill, standalone
from pytest_kernelllm.models.protocol import Sampling

ANSWER = 8

LAYERS = """
from .maths import outer
@triton_candidate(inputs=rows)
class Scale(nn.Module):
    def forward(self, x):
        return outer(x)
"""

MATHS = "def outer(x, gain=2):\n    x = x * gain\n    x = x + gain\n    return x\n"


@pytest.mark.parametrize("missing", [0, 1])
def test_what_does_not_fit_is_shown_by_its_signature(tmp_path: Path, missing: int) -> None:
    live = target_of(tmp_path, LAYERS, {"maths.py": MATHS})
    best, shortest = (fill(TEMPLATE, standalone(live, live.cases[0], longest)) for longest in LENGTHS)
    assert len(best) > len(shortest)
    tokens = len(best.encode()) + 1 + ANSWER  # of one byte each, and one at the beginning
    folder = save(tmp_path / "model", max_position_embeddings=tokens - missing)
    generator = KernelLLMGenerator(
        "local", LocalModel(str(folder)), Sampling(max_new_tokens=ANSWER), on_gpu=False
    )
    ((_, completion),) = generator.generate([Request(live.target, (0,), lambda: live)])
    assert completion.prompt == (shortest if missing else best)
    assert completion.tokens > 0


def test_what_does_not_fit_at_all_is_not_asked(tmp_path: Path) -> None:
    live = target_of(tmp_path, LAYERS, {"maths.py": MATHS})
    folder = save(tmp_path / "model", max_position_embeddings=512)
    generator = KernelLLMGenerator(
        "local", LocalModel(str(folder)), Sampling(max_new_tokens=ANSWER), on_gpu=False
    )
    ((_, completion),) = generator.generate([Request(live.target, (0,), lambda: live)])
    assert "more than the 512 that model reads" in completion.note
    assert completion.text == ""
