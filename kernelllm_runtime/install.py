"""Replaces the ``forward`` of an adopted class by a function that dispatches."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path

from kernelllm_runtime.adopted import DISPATCHER, ORIGINAL, KernelLLMWarning, caller
from kernelllm_runtime.dispatch import Dispatcher
from kernelllm_runtime.forward import standing_in
from kernelllm_runtime.kernel import Kernel
from kernelllm_runtime.parameters import has_self


def install(cls: type, kernel: Kernel) -> None:
    """Replaces ``cls.forward`` by a function that dispatches.

    Raises:
        TypeError: ``forward`` is not a plain function with a ``self``.
    """
    original = getattr(cls, "forward", None)
    original = getattr(original, ORIGINAL, original)
    if not isinstance(original, types.FunctionType) or not has_self(original):
        raise TypeError(
            f"triton_candidate: {cls.__qualname__}.forward is not a plain function; drop kernel=."
        )
    dispatcher = Dispatcher(cls, original, kernel)
    cls.forward = standing_in(original, dispatcher)  # type: ignore[attr-defined]  # every nn.Module has it


def adopt(cls: type, kernel: str) -> None:
    """Makes a class run an adopted kernel: replaces ``cls.forward`` by a function that chooses at every call.

    The original remains available as ``cls.forward.__kernelllm_original__``; ``state_dict``, pickles, copies
    and subclasses do not change. The kernel is not imported yet. Another call replaces the earlier kernel, with a
    ``KernelLLMWarning`` if that was another file's choice.

    Args:
        cls: an ``nn.Module`` class.
        kernel: dotted path of the kernel module. For a marker in a file outside any package it is first looked up
            beside that file.

    Raises:
        TypeError: the class has no ``forward`` that is a plain function.
    """
    names = caller(sys._getframe()).f_globals
    file = names.get("__file__")
    marker = Path(file).absolute() if file else None
    earlier = getattr(vars(cls).get("forward"), DISPATCHER, None)
    install(cls, Kernel(cls.__qualname__, kernel, marker, loose=not names.get("__package__")))
    if earlier is None or earlier.kernel.dotted == kernel or earlier.kernel.marker in (None, marker):
        return
    warnings.warn(
        f"{marker} adopts the kernel {kernel} for {cls.__qualname__}, and {earlier.kernel.marker} adopted {earlier.kernel.dotted}; "
        "the last one counts, so leave kernel= in one of them.",
        KernelLLMWarning,
        stacklevel=3,
    )
