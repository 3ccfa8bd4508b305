"""Runs adopted kernels: the kernel inside the domain it was verified on, the original elsewhere.

Set ``KERNELLLM_DISABLE=1`` to run only originals; it is read once per class, at its first call.
``KERNELLLM_STRICT=1`` raises a kernel's exceptions; without it the original takes over with one warning.
``KERNELLLM_INTERPRET=1`` together with ``TRITON_INTERPRET=1`` runs kernels on CPU tensors in Triton's
interpreter, which helps in debugging and tests but is thousands of times slower. Under ``torch.compile``,
``torch.export`` and every kind of tracing the original runs, so that compilers see ordinary PyTorch;
``KERNELLLM_COMPILE=1`` lets ``torch.compile`` see kernels (``compiled``).
"""

from __future__ import annotations

from types import FrameType
from typing import Any

DISPATCHER = "__kernelllm_dispatcher__"
"""Attribute of the function that replaces ``forward``: its dispatcher."""
ORIGINAL = "__kernelllm_original__"
"""Attribute of that function: the class's own ``forward``."""


class KernelLLMWarning(UserWarning):
    """An adopted kernel cannot be used and the original runs; the text states what to do."""


def explain(module: Any, *args: Any, **kwargs: Any) -> str:
    """Explains what calling an ``nn.Module`` with these arguments would run, and why. It runs nothing.

    Args:
        module: the module, adopted or not.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    name = type(module).__qualname__
    dispatcher = getattr(type(module).forward, DISPATCHER, None)
    if dispatcher is None:
        return f"{name} runs its own forward: no kernel is adopted for it."
    reason = dispatcher.reason(module, args, kwargs)
    if reason is None:
        return f"{name} runs the kernel {dispatcher.kernel.dotted}: the call is inside its verified domain."
    return f"{name} runs its original forward, not the kernel {dispatcher.kernel.dotted}: {reason}."


def caller(frame: FrameType) -> FrameType:
    """Returns the innermost frame outside this package: that of the file with the marker."""
    while frame.f_back and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kernelllm_runtime":
        frame = frame.f_back
    return frame
