"""Runs a model's example in one way or another: as it is, compiled, or compiled with kernels in its regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.regions.backend import Backend, entry_of
from pytest_kernelllm.beside.optimize.whole import COMPILED, restored, timed
from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.ranking.factory import Subject

Call = Callable[..., Any]

RECOMPILES = 256
"""Ways that one function may be compiled in: torch gives up after eight."""


@dataclass(frozen=True)
class Way:
    """How a model runs compiled."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor's."""
    regions: tuple[str, ...] = ()
    """Keys of the regions that run kernels."""
    attention: str = ""
    """The library that computes attention where it can; empty: as torch chooses."""
    compiled: bool = True
    """Whether the model is compiled at all."""


class Stage:
    """Switches a model between ways to run, and makes the example's call. Use it inside ``opened``."""

    def __init__(self, subject: Subject, modules: Mapping[str, nn.Module]) -> None:
        """``modules`` run the kernels, by their region's key."""
        self.subject, self.modules = subject, dict(modules)
        self._own = entry_of(subject.model)
        self._returned: Any = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A context without gradients, after which the model is called as before, with its buffers' values."""
        model = self.subject.model
        before = model._compiled_call_impl
        many = {"recompile_limit": RECOMPILES, "accumulated_recompile_limit": 4 * RECOMPILES}
        try:
            with torch.no_grad(), restored(model), torch._dynamo.config.patch(many):
                yield
        finally:
            model._compiled_call_impl = before

    def compiled(self, way: Way) -> Call:
        """Returns the model's call in a way, compiled once it runs."""
        if not way.compiled:
            return self._own
        chosen = {key: self.modules[key] for key in way.regions}
        return self.by(Backend(chosen, way.options, way.attention))

    def by(self, backend: Any) -> Call:
        """Returns the model's call, compiled by a backend for sizes as they are."""
        return torch.compile(self._own, backend=backend, dynamic=False)

    def as_people_do(self, mode: str | None) -> Call:
        """Returns the model's call under ``torch.compile`` with its defaults, or in one of its modes."""
        return torch.compile(self._own, mode=mode)

    def run(self, call: Call | None) -> Any:
        """Runs the example with a call of the model, None for its own; returns what the model's last call returned.

        Raises:
            RankError: the example does not call the model.
        """
        own = self._own if call is None else call
        calls = 0

        def noted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            self._returned = own(*args, **kwargs)
            return self._returned

        self.subject.model._compiled_call_impl = noted
        try:
            self.subject.run()
            if not calls:
                raise RankError(
                    f"The example never calls the {type(self.subject.model).__name__}, but perhaps a part or another method "
                    "of it; return the module whose own call is to be optimized."
                )
            return self._returned
        finally:
            self._returned = None

    def seconds(self, call: Call | None) -> float:
        """Returns the seconds of some runs of the example."""
        self.subject.model._compiled_call_impl = call
        return timed(self.subject.run, COMPILED)
