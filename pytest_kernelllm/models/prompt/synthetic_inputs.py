"""Replaces inputs whose callable has no source by tensors of the same shape, dtype and value range."""

from __future__ import annotations

import ast
from typing import Any

import torch

from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.values import ExpressionWriter

_SMALL = 16
"""Integer tensors with at most this many elements are written as they are: they may be sizes or offsets."""


def synthetic(value: Any, shape: tuple[int, ...] | None, writer: ExpressionWriter) -> ast.expr:
    """Writes an expression that makes a value like a sample.

    Args:
        value: the sample, on the CPU, with floating tensors in the requested dtype.
        shape: the shape of the tensor to make; None for the sample's own.
        writer: writes values.

    Raises:
        NotPortable: the value cannot be written.
    """
    if not isinstance(value, torch.Tensor):
        return writer.write(value)
    shape = tuple(value.shape) if shape is None else shape
    if value.is_complex():
        raise NotPortable(
            "a complex input whose callable has no source; write it as a plain function at module level"
        )
    if value.numel() and bool((value == value.flatten()[0]).all()):
        return _make(writer, "full", shape, value.flatten()[0].item(), dtype=value.dtype)
    if value.dtype == torch.bool:
        return ast.Compare(_make(writer, "rand", *shape), [ast.Lt()], [ast.Constant(0.5)])
    if not value.is_floating_point():
        return _integers(value, shape, writer)
    distribution = "rand" if value.min() >= 0 and value.max() <= 1 else "randn"
    if bool((value.abs() == 1).all()):
        signs = _make(writer, "randint", 0, 2, shape)
        made: ast.expr = ast.BinOp(
            ast.BinOp(signs, ast.Mult(), ast.Constant(2.0)), ast.Sub(), ast.Constant(1.0)
        )
    else:
        made = _make(writer, distribution, *shape)
    if value.dtype == torch.float32:
        return made
    return ast.Call(ast.Attribute(made, "to", ast.Load()), [writer.write(value.dtype)], [])


def _integers(value: torch.Tensor, shape: tuple[int, ...], writer: ExpressionWriter) -> ast.expr:
    if value.numel() <= _SMALL and tuple(value.shape) == shape:
        return writer.write(value)
    steps = torch.arange(value.shape[-1]) if value.dim() else value
    if torch.equal(value.long(), steps.expand(value.shape)):
        row = _make(writer, "arange", shape[-1], dtype=value.dtype)
        return (
            row
            if len(shape) == 1
            else ast.Call(ast.Attribute(row, "repeat", ast.Load()), _ints((*shape[:-1], 1)), [])
        )
    low, high = int(value.min()), int(value.max())
    return _make(writer, "randint", low, high + 1, shape, dtype=value.dtype)


def _make(writer: ExpressionWriter, name: str, *args: Any, **kwargs: Any) -> ast.expr:
    function = ast.Attribute(writer.refer(torch), name, ast.Load())
    keywords = [
        ast.keyword(key, writer.write(value))
        for key, value in kwargs.items()
        if not (key == "dtype" and value == _default_dtype(name, args))
    ]
    return ast.Call(function, [writer.write(arg) for arg in args], keywords)


def _default_dtype(name: str, args: tuple[Any, ...]) -> torch.dtype | None:
    if name in ("randint", "arange"):
        return torch.int64
    return torch.float32 if name == "full" and isinstance(args[1], float) else None


def _ints(values: tuple[int, ...]) -> list[ast.expr]:
    return [ast.Constant(value) for value in values]
