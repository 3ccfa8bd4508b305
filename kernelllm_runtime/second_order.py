"""Refuses second derivatives through a kernel, which would be silently wrong: a kernel's gradients have no graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def first_order_only(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``run`` with outputs whose backward pass raises an error under ``create_graph=True``."""

    def run_first_order(*values: Any) -> Any:
        outputs = run(*values)
        if torch.is_grad_enabled():
            for tensor in _tensors(outputs):
                if tensor.grad_fn is not None:
                    tensor.register_hook(_refuse)
        return outputs

    return run_first_order


def _refuse(gradient: torch.Tensor) -> None:
    if torch.is_grad_enabled():  # as long as the backward pass runs that creates a graph
        raise RuntimeError(
            "an adopted kernel computes no second derivatives; call the module with KERNELLLM_DISABLE=1, or "
            "differentiate without create_graph=True"
        )


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, tuple | list | Mapping):
        for part in outputs.values() if isinstance(outputs, Mapping) else outputs:
            yield from _tensors(part)
