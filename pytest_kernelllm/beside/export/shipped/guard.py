"""Chooses, at every call of a kernelized module, between the kernel and the module's own ``forward``, as adopted classes do.

The kernel runs only inside the domain it was verified on, and only for the class it was verified against.
``KERNELLLM_DISABLE=1`` runs only originals; ``KERNELLLM_STRICT=1`` raises a kernel's exceptions instead of falling
back. ``KERNELLLM_INTERPRET=1`` with ``TRITON_INTERPRET=1`` runs kernels on CPU tensors, to try them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.any_kernel import Unavailable, refuse_if_disabled
from kernelllm_runtime.classes import class_digest
from kernelllm_runtime.dispatch import Dispatcher
from kernelllm_runtime.targets import Domain, domains

_ADVICE = "export it again, or use the class and the files as they were exported"


class Guard:
    """One exported kernel, and the class it is for."""

    def __init__(self, package: str, kernel: str, sha256: str, owner: str, digest: str) -> None:
        """Name the kernel module; nothing is imported yet.

        Args:
            sha256: SHA-256 of its file, as exported.
            owner: qualified name of the class that it was verified against.
            digest: ``class_digest`` of that class.
        """
        self.package, self.kernel, self.sha256 = package, kernel, sha256
        self.owner, self.digest = owner, digest
        self._dispatchers: dict[type, Dispatcher] = {}

    def __call__(self, layer: type, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of ``module``, with the kernel or with its own forward, and returns the result.

        Raises:
            TypeError: ``module`` is an instance of ``layer``, which has no original forward to fall back to.
        """
        if isinstance(module, layer):
            raise TypeError(f"{layer.__name__} is a layer for kernels.kernelize and has no state of its own.")
        cls = type(module)
        original: Any = cls.forward
        if not torch.compiler.is_dynamo_compiling():
            if cls not in self._dispatchers:
                self._dispatchers[cls] = Dispatcher(cls, original, _Exported(self, cls))
            dispatcher = self._dispatchers[cls]
            values = dispatcher.scope.values(args, kwargs)
            form = None if isinstance(values, str) else dispatcher.form(module, *values)
            if form is not None and form.kernel is not None:
                try:
                    return form.kernel(module, *values)
                except Exception as error:
                    dispatcher.failed(error)
        return original(module, *args, **kwargs)


class _Exported:
    """The kernel for one class, which must be the one that it was verified against."""

    def __init__(self, guard: Guard, cls: type) -> None:
        self._guard, self._cls = guard, cls
        self.dotted = guard.kernel

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        return domains(self._module.SUPPORTS)

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        return self._module.forward  # type: ignore[no-any-return]  # ours to call, theirs to type

    @functools.cached_property
    def _module(self) -> Any:
        refuse_if_disabled()
        guard = self._guard
        if self._cls.__qualname__ != guard.owner:
            raise Unavailable(f"the kernel was verified against {guard.owner}, another class", _ADVICE)
        if class_digest(self._cls) != guard.digest:
            raise Unavailable("its source is not what the kernel was verified against", _ADVICE)
        path = Path(__file__).with_name(f"{guard.kernel}.py")
        try:
            same = hashlib.sha256(path.read_bytes()).hexdigest() == guard.sha256
            module = importlib.import_module(f"{guard.package}.{guard.kernel}") if same else None
        except Exception as error:
            failed = f"{path} cannot be imported ({type(error).__name__}: {error})"
            raise Unavailable(failed, _ADVICE) from error
        if module is None:
            raise Unavailable(f"{path} is not the file that was exported", _ADVICE)
        return module
