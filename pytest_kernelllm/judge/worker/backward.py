"""Runs a candidate's backward pass, once, or again in ways that make no difference to an honest one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pytest_kernelllm.judge.shared.structure import flatten

Tensors = Sequence[torch.Tensor]

_NOTICED = ("modified by an inplace operation", "has been modified inplace")
"""What PyTorch says where a saved tensor was changed, or an output that is a view."""


def both_ways(
    call: Callable[[], Any],
    named: Mapping[str, torch.Tensor],
    request: Mapping[str, Any],
    tensor: Callable[[Any], torch.Tensor],
) -> tuple[Any, list[torch.Tensor]]:
    """Makes a call and its backward pass; returns the outputs and a gradient for each source, zeros where there is none.

    Args:
        call: calls ``forward``.
        named: inputs, parameters and buffers by name.
        request: see ``judge.reference.gradients``.
        tensor: returns the tensor of a description.
    """
    sources = [named[name] for name in request["wrt"]]
    every = list({id(each): each for each in named.values()}.values())  # one with two names once
    before = [each.requires_grad for each in every]
    with torch.enable_grad():
        for each in every:
            each.requires_grad_(any(each is source for source in sources))
        outputs = call()
        flat = [leaf for leaf in flatten(outputs)[1] if isinstance(leaf, torch.Tensor)]
        pairs = [
            (leaf, tensor(given["buffer"]).as_strided(given["shape"], given["strides"]))
            for leaf, given in zip(flat, request["outputs"], strict=False)
            if given is not None and leaf.requires_grad
        ]
        found = _gradients(pairs, sources, request["again"]) if pairs else [None] * len(sources)
    for each, required in zip(every, before, strict=True):
        each.requires_grad_(required)
    return outputs, [
        torch.zeros_like(s) if g is None else g.detach() for s, g in zip(sources, found, strict=True)
    ]


def _gradients(
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
                if not any(words in str(error) for words in _NOTICED):
                    raise
    return found


@contextlib.contextmanager
def _changed(tensors: Tensors) -> Iterator[None]:
    """A context in which tensors hold NaN."""
    before = [tensor.detach().clone() for tensor in tensors]
    for tensor in tensors:
        tensor.detach().fill_(float("nan"))
    try:
        yield
    finally:
        for tensor, value in zip(tensors, before, strict=True):
            tensor.detach().copy_(value)
