"""Chooses, at every call of an adopted class, between its kernel and its original ``forward``."""

from __future__ import annotations

import os
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.adopted import KernelLLMWarning
from kernelllm_runtime.ambient import ambient_reason, autocast_reason
from kernelllm_runtime.any_kernel import AnyKernel, Unavailable
from kernelllm_runtime.domain import PLAIN, SCALARS
from kernelllm_runtime.forms import Form, fits, never
from kernelllm_runtime.leaves import all_leaves
from kernelllm_runtime.scope import Scope
from kernelllm_runtime.watch import Watch, watch

_SHAPES = 1024
"""Most combinations of shapes and plain values cached per module; when it is full, the cache is cleared."""

_ALIKE = 8
"""Most forms cached for each combination: they differ in dtype, strides, grad mode and the like. The newest stay."""

_MODULES = 4096
"""Most modules cached per class: reference cycles may delay the removal of some."""

OUTSIDE = ("outside the verified domain",)
"""The arguments of the NotImplementedError with which a kernel hands a call back, see ``kernelllm_judge.coverage``."""

_ORIGINAL = Form(never, None)
"""The form of a call for which nothing is cached."""


@dataclass(slots=True, eq=False)
class Known:
    """What is cached about one module."""

    watch: Watch | None = None
    alive: weakref.ref[nn.Module] | None = None
    """Its callback removes the module from the cache before another object can get its id."""
    forms: dict[Any, list[Form]] = field(default_factory=dict)
    """Forms by shapes and plain values, which can be looked up quickly."""
    last: Form = _ORIGINAL
    """The form of the last call."""


class Dispatcher:
    """Chooses what runs the calls of one adopted class. Its caches are outside the modules."""

    nobody = Known()
    """The cache of a module that was never called."""

    def __init__(self, cls: type, original: types.FunctionType, kernel: AnyKernel) -> None:
        """``cls`` is the adopted class, ``original`` its own forward."""
        self.cls, self.original, self.kernel = cls, original, kernel
        self.scope = Scope(cls, original, kernel)
        self.off: str | None = None
        """Why the kernel is not used any more; None while it is."""
        self.known: dict[int, Known] = {}
        """Caches by the ``id`` of the module. Forms never change, so threads may share them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dispatcher, for a class pickled by value, without its caches."""
        return Dispatcher, (self.cls, self.original, self.kernel)

    def form(self, module: nn.Module, *values: Any) -> Form:
        """Returns the form of a call that differs from the module's last one.

        Args:
            values: the arguments, in the order of ``forward``'s parameters without variadic ones.
        """
        if self.off is not None:
            return _ORIGINAL
        try:
            known = self.known.get(id(module))
            key = _key(values)
            if known is not None:
                for form in known.forms.get(key, ()):
                    if form.fits(module, *values):
                        known.last = form
                        return form
            return self._new_form(module, values, key)
        except Unavailable as unavailable:
            self._give_up(str(unavailable), unavailable.advice)
        except Exception:  # the original has to handle any arguments
            pass
        return _ORIGINAL

    def load(self) -> bool:
        """Imports the kernel now and returns whether it can be used."""
        if self.off is None:
            try:
                self.scope.domains, self.scope.run  # noqa: B018  # reading the properties loads the kernel
            except Unavailable as unavailable:
                self._give_up(str(unavailable), unavailable.advice)
        return self.off is None

    def failed(self, error: Exception) -> None:
        """Handles an exception of the kernel, inside ``except``: from now on the original runs.

        Raises:
            Exception: ``error`` itself, if KERNELLLM_STRICT is set.
        """
        if isinstance(error, NotImplementedError) and error.args == OUTSIDE:
            return  # at what no probe ran the original runs, and the kernel stays
        if os.environ.get("KERNELLLM_STRICT", "") not in ("", "0"):
            raise error
        if not isinstance(error, torch.OutOfMemoryError):  # a lack of memory is not the kernel's fault
            raised = f"{self.kernel.dotted} raised {type(error).__name__}: {error}"
            self._give_up(raised, "set KERNELLLM_STRICT=1 to see where, and report it")

    def reason(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Returns why the original would run this call; None if the kernel would."""
        if self.off is not None:
            return self.off
        values = self.scope.values(args, kwargs)
        try:
            reason = values if isinstance(values, str) else self.scope.outside(module, values)
            return ambient_reason() or reason or autocast_reason(self.scope.device_type)
        except Unavailable as unavailable:
            return str(unavailable)

    def _new_form(self, module: nn.Module, values: tuple[Any, ...], key: Any) -> Form:
        if ambient_reason() or not all(
            type(value) in PLAIN or type(value) in SCALARS for value in all_leaves(values)
        ):
            return _ORIGINAL
        known = self.known.get(id(module))
        if known is None or known.watch is None or known.watch.unchanged(module) is None:
            known = self._look(module)
        assert known.watch is not None
        tensors = known.watch.unchanged(module)
        placed = any(domain.aligned for domain in self.scope.domains)
        fitting = (
            never if tensors is None else fits(known.watch, tensors, values, self.scope.defaults, placed)
        )
        form = Form(fitting, self._decide(module, values))
        # Some calls never fit again: an attribute is a new object each time, or an argument is also a parameter.
        if form.fits(module, *values):
            if len(known.forms) >= _SHAPES:
                known.forms.clear()
            known.forms[key] = [form, *known.forms.get(key, ())][:_ALIKE]
            known.last = form
        return form

    def _look(self, module: nn.Module) -> Known:
        number = id(module)
        paths = dict.fromkeys(path for domain in self.scope.domains for path in domain.attributes)
        known = Known(watch(module, paths), weakref.ref(module, lambda _: self._forget(number)))
        if len(self.known) >= _MODULES:
            self.known.clear()
        self.known[number] = known
        return known

    def _forget(self, number: int) -> None:
        self.known.pop(number, None)

    def _decide(self, module: nn.Module, values: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The kernel's ``forward`` on the right device; None for the original."""
        if self.scope.outside(module, values) or autocast_reason(self.scope.device_type):
            return None
        return _on(_device(module, values), self.scope.run)

    def _give_up(self, reason: str, advice: str) -> None:
        first, self.off = self.off is None, reason
        self.known.clear()
        if first and advice:
            message = f"{self.cls.__qualname__} runs its original forward because {reason}; {advice}."
            warnings.warn(message, KernelLLMWarning, stacklevel=4)


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes of tensors, and what is no tensor."""
    return tuple([value.shape if type(value) in PLAIN else _held(value) for value in values])


def _held(value: Any) -> Any:
    if type(value) is dict:
        return (*value, _key(tuple(value.values())))
    return _key(tuple(value)) if type(value) in (tuple, list) else value


def _on(device: torch.device, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with ``device`` as the current device, if there are several: Triton launches on the current one."""
    if device.type != "cuda" or torch.cuda.device_count() == 1:
        return run

    def there(*args: Any) -> Any:
        if torch.cuda.current_device() == device.index:
            return run(*args)
        with torch.cuda.device(device):
            return run(*args)

    return there


def _device(module: nn.Module, values: tuple[Any, ...]) -> torch.device:
    """The device of the first tensor; the domain check ensures that all are on one device."""
    every = (*all_leaves(values), *module.parameters(), *module.buffers())
    return next((each.device for each in every if isinstance(each, torch.Tensor)), torch.device("cpu"))
