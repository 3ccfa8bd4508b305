"""Lists the states of PyTorch and of tensors in which a module may be called, and whether its kernel runs there.

What the dispatcher lets through and what the judge runs probes under is this one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class State:
    """One state."""

    name: str
    """In words, after "with"."""
    enter: Callable[[Tensors, Tensors], AbstractContextManager[object]]
    """Returns the context, for the inputs of a call and the module's tensors."""
    call: int = 0
    """In which of the judge's calls in other states it is; those of one call hold together. 0: no kernel runs in it."""


@contextlib.contextmanager
def _requiring(tensors: Tensors, others: Tensors) -> Iterator[None]:
    """A context in which floating ``tensors`` require gradients and ``others`` do not."""
    floating = {id(each): each for each in (*tensors, *others) if each.is_floating_point()}
    before = {key: each.requires_grad for key, each in floating.items()}
    wanted = {id(each) for each in tensors}
    for key, each in floating.items():
        each.requires_grad_(key in wanted)
    try:
        yield
    finally:
        for key, each in floating.items():
            each.requires_grad_(before[key])


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import Inductor
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def _device(inputs: Tensors, state: Tensors) -> torch.device:
    return next((each.device for each in (*inputs, *state)), torch.device("cpu"))


STATES: tuple[State, ...] = (
    State("inference mode", lambda *_: torch.inference_mode(), 1),
    State("inputs that require gradients, and weights that do not", _requiring, 1),
    State(
        "torch.compiler.is_compiling",
        lambda *_: mock.patch.object(torch.compiler, "is_compiling", lambda: True),
        1,
    ),
    State("gradients enabled", lambda *_: torch.enable_grad(), 2),
    State("nothing that requires gradients", lambda inputs, state: _requiring((), (*inputs, *state)), 2),
    State("deterministic algorithms", lambda *_: _deterministic(), 2),
    State("a default device", lambda inputs, state: _device(inputs, state), 2),
    State("autocast", lambda inputs, state: torch.autocast(_device(inputs, state).type, torch.bfloat16)),
    State("another default dtype", lambda *_: _default_dtype()),
    State("a dispatch mode", lambda *_: _DispatchMode()),  # type: ignore[no-untyped-call]
    State("a function mode", lambda *_: _FunctionMode()),
    State("forward-mode gradients", lambda *_: forward_ad.dual_level()),
    State("hooks on all modules", lambda *_: modules.register_module_forward_hook(lambda *_: None)),
    State("cached parametrizations", lambda *_: parametrize.cached()),
)
"""All states, those in which kernels run first."""


def entered(call: int, inputs: Tensors, state: Tensors) -> contextlib.ExitStack:
    """Enters all states of one call of the judge's; the stack leaves them."""
    with contextlib.ExitStack() as stack:
        for each in STATES:
            if each.call == call:
                stack.enter_context(each.enter(inputs, state))
        return stack.pop_all()
