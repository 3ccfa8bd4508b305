"""Chooses, at every call of an adopted class, between its kernel and its original ``forward``."""

from __future__ import annotations

import functools
import inspect
import os
import types
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.runtime import DISPATCHER, ORIGINAL, KernelLLMWarning
from pytest_kernelllm.runtime.ambient import ambient_reason, autocast_reason
from pytest_kernelllm.runtime.domain import matches
from pytest_kernelllm.runtime.kernel import AGAIN, Kernel, Unavailable
from pytest_kernelllm.runtime.snapshot import Snapshot

_KEYS = 1024
"""Decisions remembered per module instance; more than that many distinct call shapes start over."""

_INSTANCES = 4096
"""Instances remembered per class, for those that references in a circle keep from being forgotten."""

_PLAIN = (torch.Tensor, nn.Parameter)
_SCALARS = (bool, int, float, str, type(None))


def install(cls: type, kernel: Kernel) -> None:
    """Replace ``cls.forward`` by a function that dispatches.

    Raises:
        TypeError: ``forward`` is not a plain function.
    """
    original = getattr(cls, "forward", None)
    original = getattr(original, ORIGINAL, original)
    if not isinstance(original, types.FunctionType):
        raise TypeError(
            f"triton_candidate: {cls.__qualname__}.forward is not a plain function; drop kernel=."
        )
    dispatcher = Dispatcher(cls, original, kernel)
    cls.forward = _forward(original, dispatcher)  # type: ignore[attr-defined]  # every nn.Module class has it


def _forward(original: types.FunctionType, dispatcher: Dispatcher) -> Callable[..., Any]:
    choose, run, is_compiling = dispatcher.choose, dispatcher.run, torch.compiler.is_compiling

    def forward(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # torch.jit reads annotations
        if is_compiling():
            return original(self, *args, **kwargs)
        device = choose(self, args, kwargs)
        if device is None:
            return original(self, *args, **kwargs)
        return run(device, self, args, kwargs)

    # torch.jit.script compiles the original's source (it follows __wrapped__) but looks names up in the
    # globals of the function it was given: those must be the user's.
    function = types.FunctionType(
        forward.__code__, original.__globals__, original.__name__, None, forward.__closure__
    )
    functools.update_wrapper(function, original)
    setattr(function, ORIGINAL, original)
    setattr(function, DISPATCHER, dispatcher)
    return function


class _Instance:
    """What is remembered about one module: its snapshot, and a decision per form of call."""

    def __init__(self, module: nn.Module, snapshot: Snapshot, forget: Callable[[Any], None]) -> None:
        self.alive = weakref.ref(module, forget)
        self.snapshot = snapshot
        self.decisions: dict[Any, torch.device | None] = {}


class Dispatcher:
    """Decides for one adopted class. Keeps what it knows about instances outside of them."""

    def __init__(self, cls: type, original: types.FunctionType, kernel: Kernel) -> None:
        """``cls`` is the adopted class, ``original`` its own forward."""
        self.cls, self.original, self.kernel = cls, original, kernel
        parameters = list(inspect.signature(original).parameters.values())
        self.signature = inspect.Signature(parameters[1:])
        self.device_type = _device_type()
        self.off: str | None = None
        """Why the kernel is out of use for good."""
        self._instances: dict[int, _Instance] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A class pickled by value takes its dispatcher along, without what it remembers."""
        kernel = Kernel(self.kernel.name, self.kernel.dotted, self.kernel.marker, self.kernel.loose)
        return Dispatcher, (self.cls, self.original, kernel)

    # ------------------------------------------------------------------ at every call

    def choose(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
        """The device on which the kernel is to run this call; None: the original is to run."""
        if self.off is not None or ambient_reason() is not None:
            return None
        try:
            instance = self._instances.get(id(module))
            if instance is None or instance.alive() is not module or not instance.snapshot.holds(module):
                instance = self._look(module)
            key = _key(instance.snapshot, args, kwargs)
            if key is None:
                return None
            if key in instance.decisions:
                device = instance.decisions[key]
            else:
                if len(instance.decisions) >= _KEYS:
                    instance.decisions.clear()
                device = instance.decisions[key] = self._decide(module, args, kwargs)
        except Unavailable as unavailable:
            self._give_up(str(unavailable), unavailable.advice)
            return None
        except Exception:  # whatever the arguments are, it is the original's to deal with them
            return None
        return None if device is None or autocast_reason(self.device_type) is not None else device

    def run(
        self, device: torch.device, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run the kernel; if it raises, the original, now and from then on."""
        try:
            if device.type == "cuda" and device.index != torch.cuda.current_device():
                with torch.cuda.device(device):
                    return self.kernel.forward(module, *args, **kwargs)
            return self.kernel.forward(module, *args, **kwargs)
        except Exception as error:
            if os.environ.get("KERNELLLM_STRICT", "") not in ("", "0"):
                raise
            if not isinstance(error, torch.OutOfMemoryError):  # which says nothing about the kernel
                told = f"{self.kernel.dotted} raised {type(error).__name__}: {error}"
                self._give_up(told, "set KERNELLLM_STRICT=1 to see where, and report it")
        return self.original(module, *args, **kwargs)

    # ------------------------------------------------------------------ once per form of call

    def reason(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why the original would run this call; None if the kernel would."""
        if self.off is not None:
            return self.off
        try:
            reason = ambient_reason() or self._outside(module, args, kwargs)
            return reason or autocast_reason(self.device_type)
        except Unavailable as unavailable:
            return str(unavailable)

    def _look(self, module: nn.Module) -> _Instance:
        number = id(module)
        paths = dict.fromkeys(path for domain in self.kernel.domains for path in domain.attributes)
        instance = _Instance(module, Snapshot(module, paths), lambda _: self._forget(number))
        if len(self._instances) >= _INSTANCES:
            self._instances.clear()
        self._instances[number] = instance
        return instance

    def _forget(self, number: int) -> None:
        self._instances.pop(number, None)

    def _decide(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.device | None:
        return _device(module, args, kwargs) if self._outside(module, args, kwargs) is None else None

    def _outside(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why a call is outside every domain; None if it is inside one, and the kernel can take it.

        Raises:
            Unavailable: the kernel cannot be used at all.
        """
        domains = self.kernel.domains
        for value in (*args, *kwargs.values()):
            if type(value) not in (*_PLAIN, *_SCALARS):
                return f"an argument is a {type(value).__qualname__}, neither a plain tensor nor a number"
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"the arguments do not fit forward ({error})"
        if overridden := _overridden(module, self.cls):
            return overridden
        reasons = [matches(domain, module, bound, self.device_type) for domain in domains]
        if not domains or None not in reasons:
            several = "".join(f"; for domain {n} of {len(domains)}: {r}" for n, r in enumerate(reasons, 1))
            return (
                reasons[0] if len(reasons) == 1 else (several.removeprefix("; ") or "it supports no domain")
            )
        try:
            self._kernel_signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"the arguments do not fit the kernel's forward ({error})"
        return None

    @functools.cached_property
    def _kernel_signature(self) -> inspect.Signature:
        """What the kernel's ``forward`` takes beside ``self``: the original's first parameters.

        Raises:
            Unavailable: it has other parameters, or other defaults.
        """
        theirs = list(inspect.signature(self.kernel.forward).parameters.values())[1:]
        ours = list(self.signature.parameters.values())
        for index, parameter in enumerate(theirs):
            told = None
            if index >= len(ours) or parameter.name != ours[index].name:
                told = f"has another parameter `{parameter.name}`"
            elif parameter.default is not parameter.empty and parameter.default != ours[index].default:
                told = f"has another default for `{parameter.name}`"
            if told:
                raise Unavailable(f"forward of {self.kernel.dotted} {told}", AGAIN)
        return inspect.Signature(theirs)

    def _give_up(self, reason: str, advice: str) -> None:
        first, self.off = self.off is None, reason
        self._instances.clear()
        if first and advice:
            message = f"{self.cls.__qualname__} runs its original forward because {reason}; {advice}."
            warnings.warn(message, KernelLLMWarning, stacklevel=4)


def _key(snapshot: Snapshot, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a decision depends on beside the snapshot: each argument's form, and whether gradients flow.

    None for arguments that no kernel takes.
    """
    grad = torch.is_grad_enabled()
    parts: list[Any] = [grad and snapshot.requires_grad()]
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in _PLAIN:
            if value.layout is not torch.strided:
                return None
            parts.append(
                (
                    value.dtype,
                    value.shape,
                    value.device,
                    value.is_contiguous() and not value.is_neg(),
                    grad and value.requires_grad,
                )
            )
        elif type(value) in _SCALARS:
            parts.append((type(value), value))
        else:
            return None
    return (tuple(parts), tuple(kwargs)) if kwargs else tuple(parts)


def _device(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.device:
    """The device of the first tensor; the domain check sees to it that all are on one."""
    values = (*args, *kwargs.values(), *module.parameters(), *module.buffers())
    return next((value.device for value in values if isinstance(value, torch.Tensor)), torch.device("cpu"))


def _device_type() -> str:
    wanted = (os.environ.get("KERNELLLM_INTERPRET"), os.environ.get("TRITON_INTERPRET"))
    return "cpu" if wanted == ("1", "1") else "cuda"


def _overridden(module: nn.Module, cls: type) -> str | None:
    """How an instance differs from the adopted class in code that the original might call."""
    ours = {
        name for base in cls.__mro__ if base is not nn.Module and base is not object for name in vars(base)
    }
    ours -= {"forward", "extra_repr", "training", "dump_patches", "call_super_init"}
    mro = type(module).__mro__
    if cls not in mro:
        return f"{type(module).__qualname__} is no {cls.__qualname__}"
    for base in mro[: mro.index(cls)]:
        for name in vars(base):
            if name in ours and not name.startswith("__"):
                return f"{base.__qualname__} overrides `{name}` of {cls.__qualname__}"
    for name, value in vars(module).items():
        if name in ours and callable(value) and callable(getattr(cls, name, None)):
            return f"`{name}` was replaced on this instance"
    return None
