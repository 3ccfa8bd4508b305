"""Attention as one kernel: PyTorch's function and what is written out, right in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from loading import pinned

from kernelllm_judge.core.records import Completion
from kernelllm_judge.judging import Criteria
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

pytestmark = pytest.mark.slow

PROJECT = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

from pytest_kernelllm import triton_candidate


def half(*shape):
    return torch.randn(shape, dtype=torch.bfloat16)


def window(length):
    apart = torch.arange(length)[:, None] - torch.arange(length)
    return ((apart >= 0) & (apart < 70))[None, None]


@triton_candidate(inputs=lambda: (half(8, 9, 96), half(2, 9, 9)))
class Windows(nn.Module):
    def forward(self, x, bias):
        q, k, v = x.reshape(8, 9, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        return attention(q, k, v, attn_mask=bias.unsqueeze(0)).transpose(1, 2).reshape(8, 9, 32)


@triton_candidate(inputs=lambda: (half(8, 9, 96), half(2, 9, 9), half(4, 9, 9)))
class Shifted(nn.Module):
    def forward(self, x, bias, mask):
        q, k, v = x.reshape(8, 9, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * 0.3) @ k.transpose(-2, -1) + bias.unsqueeze(0)
        scores = scores.view(2, 4, 2, 9, 9) + mask.unsqueeze(1).unsqueeze(0)
        return (scores.view(8, 2, 9, 9).softmax(-1) @ v).transpose(1, 2).reshape(8, 9, 32)


@triton_candidate(inputs=lambda: (half(1, 2, 70, 16), half(1, 2, 70, 16), half(1, 2, 70, 16), torch.rand(1, 1, 1, 70) < 0.5))
class Masked(nn.Module):
    def forward(self, q, k, v, mask):
        return attention(q, k, v, attn_mask=mask).contiguous()


@triton_candidate(inputs=lambda: (half(2, 5, 48), half(2, 7, 24), half(2, 7, 24)), dims={"batch": (1, 8)})
class Shared(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (x.unflatten(-1, (-1, 12)).transpose(1, 2) for x in (q, k, v))
        return attention(q, k, v, enable_gqa=True, scale=0.5).transpose(1, 2).flatten(2)


@triton_candidate(inputs=lambda: (half(1, 4, 200, 16), half(1, 2, 200, 16), half(1, 2, 200, 16), window(200)))
class Windowed(nn.Module):
    def forward(self, q, k, v, mask):
        return attention(q, k, v, attn_mask=mask, enable_gqa=True).contiguous()


@triton_candidate(inputs=lambda: (half(1, 2, 9, 16), half(1, 2, 9, 16), half(1, 2, 9, 16)))
class Causal(nn.Module):
    def forward(self, q, k, v):
        return attention(q.relu(), k, v, is_causal=True).contiguous()


@triton_candidate(inputs=lambda: (half(2, 9, 16), half(2, 9, 16), half(2, 9, 16)))
class Scaled(nn.Module):
    def forward(self, q, k, v):
        scores = (q.view(1, 2, 9, 16) @ k.view(1, 2, 9, 16).transpose(-2, -1) + 1.0) * 0.5
        return scores.softmax(-1) @ v.view(1, 2, 9, 16)


@triton_candidate(inputs=lambda: (torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)))
class Whole(nn.Module):
    def forward(self, q, k, v):
        return attention(q.relu(), k, v).contiguous()


@triton_candidate(inputs=lambda: (half(2, 3, 20, 4), half(2, 3, 18, 4), half(2, 3, 18, 4)))
class Narrow(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v


@triton_candidate(inputs=lambda: (half(2, 2, 9, 16), half(1, 2, 9, 16), half(1, 2, 9, 16)))
class OneBatch(nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v).contiguous()


@triton_candidate(inputs=lambda: (half(1, 4, 9, 16), half(1, 1, 9, 16), half(1, 4, 9, 16)))
class OneHead(nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v).contiguous()


@triton_candidate(inputs=lambda: (half(1, 2, 9, 16), half(1, 2, 8, 16), half(1, 2, 8, 16)))
class Halves(nn.Module):
    def forward(self, q, k, v):
        return (q @ k.mT).view(1, 2, 9, 2, 4).softmax(-1).view(1, 2, 9, 8) @ v


@triton_candidate(inputs=lambda: (half(2, 4, 9, 16), half(2, 4, 9, 16), half(2, 4, 9, 16), half(2, 1, 1, 9, 9)))
class Groups(nn.Module):
    def forward(self, q, k, v, bias):
        scores = (q @ k.mT).view(2, 2, 2, 9, 9) + bias
        return scores.view(2, 4, 9, 9).softmax(-1) @ v


@triton_candidate(inputs=lambda: (half(1, 2, 9, 16), half(1, 2, 9, 16), half(1, 2, 9, 16), torch.rand(9, 9) < 0.5))
class Counted(nn.Module):
    def forward(self, q, k, v, mask):
        return (q @ k.mT + mask).softmax(-1) @ v
"""
NOTE = "attention as a kernel"


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, LiveTarget]:
    folder = tmp_path_factory.mktemp("attention")
    (folder / "layers.py").write_text(PROJECT.replace('dims={"batch": (1, 8)}', "dims={}"))
    return {target.name: pinned(folder, target) for target in scan_file(folder / "layers.py", folder).targets}


def first(live):
    (completion,) = [c for _, c in InductorGenerator().generate([Request(live.target, (0,), lambda: live)])]
    return completion


@pytest.mark.parametrize("name", ["Windows", "Shifted", "Masked", "Shared", "Narrow", "Windowed"])
def test_attention_is_one_kernel_and_right(name, lives, judge):
    live = lives[name]
    completion = first(live)
    assert completion.note == NOTE
    candidate = render(completion, live, on_gpu=True)
    assert "tl.dot" in candidate.source and "torch.nn.functional" not in candidate.source
    verdict = judge.judge(candidate, Criteria(live, timing=False))
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Windows", "scores += given", "scores += 0 * given"),
        ("Windows", "SCALE: tl.constexpr = 0.25", "SCALE: tl.constexpr = 0.26"),
        ("Shifted", "% INNER", "* 0"),
        ("Masked", "total = total * shrunk", "total = total"),
        ("Shared", "// SHARED", "* 0"),
        ("Windowed", "used = used | (odd > 0)", "used = used"),
        ("Windowed", "tl.where(used, part, PARTS - 1)", "tl.where(used, part + 1, PARTS - 1)"),
    ],
)
def test_what_is_nearly_attention_is_refused(name, old, new, lives, judge):
    live = lives[name]
    source = render(first(live), live, on_gpu=True).source
    assert old in source
    wrong = render(Completion("files", 0, source.replace(old, new), "kernel_module"), live, on_gpu=True)
    assert not judge.judge(wrong, Criteria(live, timing=False)).accepted


@pytest.mark.parametrize(
    "name", ["Causal", "Scaled", "Whole", "OneBatch", "OneHead", "Halves", "Groups", "Counted"]
)
def test_what_the_library_does_better_or_another_thing_is_left_to_it(name, lives):
    assert first(lives[name]).note != NOTE
