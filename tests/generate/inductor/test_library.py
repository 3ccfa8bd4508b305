"""Attention is left to PyTorch, and norms are taken apart, as on a GPU, whatever the CPU does that it is traced on."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from survey import made
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from kernelllm_judge.render.render import render
from pytest_kernelllm.generate.inductor import library
from pytest_kernelllm.generate.inductor.trace import export


def forward(name: str) -> str:
    """The statements of a rendered candidate's ``forward``."""
    live, completion = made(f"composed.py::{name}")
    tree = ast.parse(render(completion, live).source)
    return next(
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Attention", ", is_causal=True).transpose(1, 2).contiguous()"),
        ("GroupedAttention", "(q, k, v, scale=0.2, enable_gqa=True).transpose(1, 2).contiguous()"),
    ],
)
def test_attention_is_a_call_of_pytorch_in_the_order_that_it_was_traced_in(name: str, call: str) -> None:
    text = forward(name)
    assert text.count("torch.nn.functional.scaled_dot_product_attention(") == 1
    assert call in text and "_kernel[" in text


def test_attention_that_is_returned_keeps_its_strides() -> None:
    text = forward("MaskedAttention")
    call = "out = torch.nn.functional.scaled_dot_product_attention(scratch, k, v, attn_mask=scratch_1)"
    assert text.endswith(f"{call}\n    return out")


def test_products_around_a_softmax_stay_products() -> None:
    """The judge allows attention's library only where the original calls it."""
    text = forward("EagerAttention")
    assert text.count("torch.bmm(") == 2 and "scaled_dot_product_attention" not in text


class Computes(nn.Module):
    """Calls a function with its input."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x)


class SelfAttention(nn.Module):
    """Calls ``nn.MultiheadAttention`` with one tensor as query, key and value."""

    def __init__(self, batch_first: bool, need_weights: bool, masked: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=batch_first)
        self.need_weights = need_weights
        self.register_buffer("mask", torch.ones(5, 5).tril() == 0 if masked else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor
        output, _ = self.attention(x, x, x, attn_mask=self.mask, need_weights=self.need_weights)
        return output


def traced(module: nn.Module, *shape: int) -> torch.Tensor:
    """What the graph of a module returns, without data."""
    with FakeTensorMode():
        x = torch.empty(shape)
    graph = export(module, ["x"], (x,), {}).graph.graph
    [results] = graph.find_nodes(op="output")[0].args
    value: torch.Tensor = results[0].meta["val"]
    return value


def by_heads(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x).contiguous()


def by_position(x: torch.Tensor) -> torch.Tensor:
    """As in PyTorch 2.11's ``nn.MultiheadAttention``, whose queries lie in memory by position, then by batch."""
    q = x.permute(1, 2, 0, 3)
    return F.scaled_dot_product_attention(q, q, q).permute(2, 0, 1, 3).contiguous()


@pytest.mark.parametrize("compute", [by_heads, by_position])
def test_attention_is_copied_where_the_cpu_has_it_in_that_order(
    compute: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert traced(Computes(compute), 2, 3, 4, 6).is_contiguous()
    assert traced(Computes(lambda x: compute(x).view(6, 24)), 2, 3, 4, 6).shape == (6, 24)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_multihead_attention_is_traced(
    batch_first: bool, need_weights: bool, masked: bool, training: bool
) -> None:
    module = SelfAttention(batch_first, need_weights, masked).train(training)
    shape = (3, 5, 16) if batch_first else (5, 3, 16)
    assert traced(module, *shape).shape == shape


def test_attention_is_traced_without_the_private_parts_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "exported_program", SimpleNamespace())
    assert traced(Computes(lambda x: by_heads(x.relu()).tanh()), 2, 3, 4, 6).shape == (2, 3, 4, 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_norms_keep_mean_and_deviation_in_float32_as_on_a_gpu(dtype: torch.dtype) -> None:
    table, aten = library.decompositions(), torch.ops.aten
    x = torch.randn(6, 40).to(dtype) + 3
    weight, bias = torch.randn(40).to(dtype), torch.randn(40).to(dtype)
    layer = table[aten.native_layer_norm.default](x, [40], weight, bias, 1e-5)
    batch = table[aten._native_batch_norm_legit.no_stats](x, weight, bias, True, 0.1, 1e-5)
    for (out, mean, deviation), dim in ((layer, 1), (batch, 0)):
        assert out.dtype == dtype
        assert mean.dtype == deviation.dtype == torch.promote_types(dtype, torch.float32)
        exact = x.double()
        assert torch.allclose(mean.double().flatten(), exact.mean(dim), rtol=1e-6)
        assert torch.allclose(
            deviation.double().flatten(), (exact.var(dim, correction=0) + 1e-5).rsqrt(), rtol=1e-6
        )
    exactly = [t.double() for t in (x, weight, bias)]
    near = {"rtol": torch.finfo(dtype).eps, "atol": 1e-5}
    assert torch.allclose(layer[0].double(), F.layer_norm(exactly[0], [40], *exactly[1:]), **near)
    assert torch.allclose(batch[0].double(), F.batch_norm(exactly[0], None, None, *exactly[1:], True), **near)
