"""Makes an operation of torch that runs a region, which ``torch.compile`` calls without looking inside."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.any_kernel import Unavailable
from kernelllm_runtime.regions.text import Layout

NAMESPACE = "kernelllm_regions"


@functools.cache
def _library() -> torch.library.Library:
    """Torch forgets operations with the object that defined them, so this one stays: compiled code names them."""
    return torch.library.Library(NAMESPACE, "FRAGMENT")


@functools.cache
def _running(name: str) -> list[nn.Module]:
    """The module that an operation calls: of those with one kernel, the one that was placed last."""
    return []


def operator_of(
    name: str,
    module: nn.Module,
    inputs: Sequence[Layout],
    outputs: Sequence[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]],
) -> Any:
    """Returns the operation that calls a module with tensors in the order of their memory.

    Args:
        name: what the operation is called, together with a digest of the kernel.
        module: runs its kernel or its own ``forward``, as the dispatcher of its class decides.
        outputs: dtype, shape and strides of each result.
    """
    full = f"{name}_{_digest(module)}"
    running = _running(full)
    running[:] = [module]
    if not hasattr(getattr(torch.ops, NAMESPACE), full):
        taken = ", ".join(f"Tensor x{number}" for number in range(len(inputs)))
        gives = ", ".join(["Tensor"] * len(outputs))
        gives = gives if len(outputs) == 1 else f"({gives})"
        library = _library()
        library.define(
            f"{full}({taken}) -> {gives}", tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)
        )

        def run(*tensors: torch.Tensor) -> Any:
            stored = [_stored(each, layout) for each, layout in zip(tensors, inputs, strict=True)]
            made = running[0](*stored)
            if len(outputs) == 1:
                return _laid_out(made, *outputs[0][1:])
            return tuple(_laid_out(each, *form[1:]) for each, form in zip(made, outputs, strict=True))

        def without_data(*tensors: torch.Tensor) -> Any:
            made = tuple(
                torch.empty_strided(shape, strides, dtype=dtype, device=tensors[0].device)
                for dtype, shape, strides in outputs
            )
            return made[0] if len(made) == 1 else made

        library.impl(full, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{full}", without_data, lib=library)
    return getattr(getattr(torch.ops, NAMESPACE), full).default


def _digest(module: nn.Module) -> str:
    """Names the program that a module runs, the same in each process: TorchInductor caches code by names of operations."""
    dispatcher = getattr(type(module).forward, DISPATCHER, None)
    try:
        text = dispatcher.kernel.source if dispatcher else str(id(module))
    except Unavailable:  # its own forward will run
        text = ""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _stored(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Returns a tensor in the order of its memory; where it lies otherwise, a copy."""
    stored = tensor.permute(layout.order) if layout.permuted else tensor
    if not stored.is_contiguous():
        return stored.contiguous()
    return _laid_out(stored, stored.shape, _strides(stored.shape))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a new tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _laid_out(tensor: torch.Tensor, shape: Sequence[int], strides: tuple[int, ...]) -> torch.Tensor:
    """Returns a tensor with these strides; a view where only dimensions of size 1 differ, else a copy."""
    if tensor.stride() == strides:
        return tensor
    if all(size < 2 or a == b for size, a, b in zip(shape, tensor.stride(), strides, strict=True)):
        return tensor.as_strided(tuple(shape), strides)
    return torch.empty_strided(tuple(shape), strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
