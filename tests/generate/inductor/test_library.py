"""Attention is left to PyTorch as on a GPU, whatever kernels the CPU has that it is traced on."""

from __future__ import annotations

import ast

import pytest
from survey import made

from pytest_kernelllm.generate.render.render import render


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
    call = "out = torch.nn.functional.scaled_dot_product_attention(scratch, k, v, attn_mask=mask)"
    assert text.endswith(f"{call}\n    return out")


def test_products_around_a_softmax_stay_products() -> None:
    """The judge allows attention's library only where the original calls it."""
    text = forward("EagerAttention")
    assert text.count("torch.bmm(") == 2 and "scaled_dot_product_attention" not in text
