"""Replaces the ``forward`` of an adopted class by a function that dispatches."""

from __future__ import annotations

import types

from kernelllm_runtime.adopted import ORIGINAL
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
