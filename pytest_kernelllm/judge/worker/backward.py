"""Runs a candidate's backward pass, once, or again in ways that make no difference to an honest one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

Tensors = Sequence[torch.Tensor]

_NOTICED = "modified by an inplace operation"
"""What PyTorch says where a saved tensor was changed."""


def gradients(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], sources: Tensors, again: str
) -> Sequence[torch.Tensor | None]:
    """Returns the gradients of the sources; None where there is none.

    Args:
        pairs: outputs, each with the gradient that flows into it.
        sources: inputs and parameters.
        again: how the backward pass is run a second time, whose gradients are returned: ``kept``, with the same graph and one
            for second derivatives; ``changed``, after outputs and sources were changed in place. There PyTorch may refuse it,
            then the first ones are returned. Empty: it runs once.
    """
    roots, into = [leaf for leaf, _ in pairs], [gradient for _, gradient in pairs]

    def run(create_graph: bool = False) -> Sequence[torch.Tensor | None]:
        return torch.autograd.grad(
            roots, sources, into, retain_graph=again != "", create_graph=create_graph, allow_unused=True
        )

    found = run()
    if again == "kept":
        return run(create_graph=True)
    if again == "changed":
        with _changed([*roots, *sources]):
            try:
                return run()
            except RuntimeError as error:
                if _NOTICED not in str(error):
                    raise
    return found


@contextlib.contextmanager
def _changed(tensors: Tensors) -> Iterator[None]:
    """A context in which tensors hold NaN."""
    with torch.no_grad():
        before = [tensor.clone() for tensor in tensors]
        for tensor in tensors:
            tensor.fill_(float("nan"))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
