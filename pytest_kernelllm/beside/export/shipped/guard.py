"""Chooses, at every call of a kernelized module, between the kernel and the module's own ``forward``.

The kernel runs only inside the domain it was verified on, and only for the class it was verified against.
``KERNELLLM_DISABLE=1`` runs only originals; ``KERNELLLM_STRICT=1`` raises a kernel's exceptions instead of falling
back. ``KERNELLLM_INTERPRET=1`` with ``TRITON_INTERPRET=1`` runs kernels on CPU tensors, to try them.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.ambient import ambient_reason, autocast_reason
from kernelllm_runtime.classes import class_digest
from kernelllm_runtime.domain import matches
from kernelllm_runtime.leaves import all_leaves
from kernelllm_runtime.targets import Domain, domains


class KernelWarning(UserWarning):
    """A kernel cannot be used; the module's own forward runs."""


class Guard:
    """One exported kernel, and the class it is for."""

    def __init__(self, package: str, kernel: str, sha256: str, owner: str, digest: str) -> None:
        """Name the kernel module; nothing is imported yet.

        Args:
            package: the package that contains the kernel module.
            kernel: its name there.
            sha256: SHA-256 of its file, as exported.
            owner: qualified name of the class that it was verified against.
            digest: ``class_digest`` of that class.
        """
        self.package, self.kernel, self.sha256 = package, kernel, sha256
        self.owner, self.digest = owner, digest
        self.off = "KERNELLLM_DISABLE is set" if _is_set("KERNELLLM_DISABLE") else ""
        """Why the kernel is not used any more; empty while it is."""
        interpreted = _is_set("KERNELLLM_INTERPRET") and _is_set("TRITON_INTERPRET")
        self.device_type = "cpu" if interpreted else "cuda"
        self._classes: dict[type, _Original] = {}

    def __call__(self, layer: type, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of ``module``, with the kernel or with its own forward, and returns the result.

        Raises:
            TypeError: ``module`` is an instance of ``layer``, which has no original forward to fall back to.
        """
        if isinstance(module, layer):
            raise TypeError(f"{layer.__name__} is a layer for kernels.kernelize and has no state of its own.")
        original = type(module).forward
        if (bound := self._bound(module, args, kwargs)) is None:
            return original(module, *args, **kwargs)
        try:
            return self._run(module, bound.arguments)
        except Exception as error:
            if _is_set("KERNELLLM_STRICT"):
                raise
            if not isinstance(error, torch.OutOfMemoryError):  # a lack of memory is not the kernel's fault
                self._give_up(f"its kernel raised {type(error).__name__}: {error}")
        return original(module, *args, **kwargs)

    def reason(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Returns why the module's own forward would run this call; None if the kernel would."""
        if self.off or (reason := ambient_reason() or autocast_reason(self.device_type)):
            return self.off or reason
        original = self._original(type(module))
        if original.problem or self._module is None:
            return original.problem or self.off
        if changed := original.methods & vars(module).keys():
            return f"`{min(changed)}` was replaced on this instance"
        try:
            bound = original.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"the arguments do not fit forward ({error})"
        reasons = [matches(each, module, bound, self.device_type) for each in self._domains]
        return None if None in reasons else "; ".join(str(each) for each in reasons)

    def _bound(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> inspect.BoundArguments | None:
        try:
            if self.reason(module, args, kwargs) is not None:
                return None
            return self._original(type(module)).signature.bind(*args, **kwargs)
        except Exception:  # the original has to handle any arguments
            return None

    def _run(self, module: nn.Module, arguments: Mapping[str, Any]) -> Any:
        taken = {name: arguments[name] for name in self._parameters if name in arguments}
        values = (*all_leaves(taken.values()), *module.parameters(), *module.buffers())
        device = next(value.device for value in values if isinstance(value, torch.Tensor))
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self._module.forward(module, **taken)
        return self._module.forward(module, **taken)

    def _original(self, cls: type) -> _Original:
        if cls not in self._classes:
            self._classes[cls] = _Original(cls, self.owner, self.digest)
            if self._classes[cls].problem:
                self._warn(cls.__qualname__, self._classes[cls].problem)
        return self._classes[cls]

    @cached_property
    def _module(self) -> Any:
        """The kernel module; None if it cannot be used, and then ``off`` states why."""
        path = Path(__file__).with_name(f"{self.kernel}.py")
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
                self._give_up(f"{path} is not the file that was exported")
                return None
            return importlib.import_module(f"{self.package}.{self.kernel}")
        except Exception as error:
            self._give_up(f"{path} cannot be imported ({type(error).__name__}: {error})")
        return None

    @cached_property
    def _domains(self) -> tuple[Domain, ...]:
        return domains(self._module.SUPPORTS)

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self._module.forward).parameters)[1:]

    def _give_up(self, reason: str) -> None:
        if not self.off:
            self._warn(self.owner, reason)
        self.off = reason

    def _warn(self, name: str, reason: str) -> None:
        warnings.warn(f"{name} runs its own forward because {reason}.", KernelWarning, stacklevel=5)


class _Original:
    """What the guard needs to know about a class whose instances are kernelized."""

    def __init__(self, cls: type, owner: str, digest: str) -> None:
        forward: Callable[..., Any] = cls.forward  # type: ignore[attr-defined]  # every nn.Module class has it
        self.signature = inspect.Signature(list(inspect.signature(forward).parameters.values())[1:])
        classes = [each for each in cls.__mro__ if each is not nn.Module and each is not object]
        named = {name for each in classes for name, value in vars(each).items() if callable(value)}
        self.methods = frozenset(named - {"forward"})
        """Methods that must not be replaced on an instance, because the original may call them."""
        self.problem = ""
        if cls.__qualname__ != owner:
            self.problem = f"the kernel was verified against {owner}, another class"
        elif class_digest(cls) != digest:
            self.problem = "its source is not what the kernel was verified against"


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")
