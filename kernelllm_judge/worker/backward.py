"""Runs a candidate's backward pass, once, or again in ways that make no difference to an honest one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelllm_judge.shared.leaves import flatten

Tensors = Sequence[torch.Tensor]

Waiting = Callable[[], contextlib.AbstractContextManager[None]]

_NOTICED = ("modified by an inplace operation", "has been modified inplace")
"""What PyTorch says where a saved tensor was changed, or an output that is a view."""


class BothPasses:
    """A call with its backward pass, which may be made as often as one likes."""

    def __init__(
        self,
        call: Callable[[], Any],
        named: Mapping[str, torch.Tensor],
        request: Mapping[str, Any],
        tensor: Callable[[Any], torch.Tensor],
        waiting: Waiting = contextlib.nullcontext,
    ) -> None:
        """Prepares for calls.

        Args:
            call: calls ``forward``.
            named: inputs, parameters and buffers by name.
            tensor: returns the tensor of a description.
            waiting: the context in which this thread waits for a backward pass, which another one may run.
        """
        self._call = call
        self._waiting = waiting
        self._again = request["again"]
        self._sources = [named[name] for name in request["wrt"]]
        wanted = set(map(id, self._sources))
        every = {id(each): each for each in named.values()}  # one with two names once
        self._every = [(each, key in wanted) for key, each in every.items()]
        self._into = [
            None if given is None else tensor(given["buffer"]).as_strided(given["shape"], given["strides"])
            for given in request["outputs"]
        ]
        self._found: Sequence[torch.Tensor | None] = ()

    def __call__(self) -> Any:
        """Returns the outputs of a call, and keeps its gradients until the next one."""
        self._found = ()
        before = [each.requires_grad for each, _ in self._every]
        with torch.enable_grad():
            for each, wanted in self._every:
                each.requires_grad_(wanted)
            outputs = self._call()
            flat = [leaf for leaf in flatten(outputs)[1] if isinstance(leaf, torch.Tensor)]
            pairs = [
                (leaf, gradient)
                for leaf, gradient in zip(flat, self._into, strict=False)
                if gradient is not None and leaf.requires_grad
            ]
            self._found = (
                _gradients(pairs, self._sources, self._again, self._waiting)
                if pairs
                else [None] * len(self._sources)
            )
        for (each, _), required in zip(self._every, before, strict=True):
            each.requires_grad_(required)
        return outputs

    @property
    def gradients(self) -> list[torch.Tensor]:
        """A gradient of the latest call for each source, zeros where there is none."""
        return [
            torch.zeros_like(s) if g is None else g.detach()
            for s, g in zip(self._sources, self._found, strict=True)
        ]


def _gradients(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], sources: Tensors, again: str, waiting: Waiting
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
        with waiting():
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
