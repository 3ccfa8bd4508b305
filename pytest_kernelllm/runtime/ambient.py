"""What surrounds a call and rules the kernel out: compilers, tracers, transforms, autocast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as _hooks
from torch.utils._device import DeviceContext


def _private(path: str, default: Any) -> Callable[[], Any]:
    """A function of torch that is not public, or one that returns ``default`` where this torch has it not."""
    try:
        function: Callable[[], Any] = operator.attrgetter(path)(torch)
    except AttributeError:
        return lambda: default
    return function


_tracing_state = _private("_C._get_tracing_state", None)
transform = _private("_C._functorch.peek_interpreter_stack", None)
"""The innermost active transform of torch.func, or None."""
_dispatch_modes = _private("_C._len_torch_dispatch_stack", 0)
_function_modes = _private("_C._len_torch_function_stack", 0)
HOOKS = (
    _hooks._global_forward_hooks,
    _hooks._global_forward_pre_hooks,
    _hooks._global_backward_hooks,
    _hooks._global_backward_pre_hooks,
)
"""Hooks on all modules, by their handle; torch fills and empties these dictionaries, and never replaces them."""


def ambient_reason() -> str | None:
    """Why no kernel may run now, whatever the call; None if one may."""
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export sees the original"
    if _tracing_state() is not None:
        return "torch.jit is tracing"
    if transform() is not None:
        return "a torch.func transform (vmap, grad) is active"
    if _dispatch_modes():
        return "a torch dispatch mode is active"
    if _function_modes() and not _only_default_devices():
        return "a torch function mode is active"
    if any(HOOKS):
        return "hooks on all modules are registered, which a kernel does not call"
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "forward-mode gradients are active"
    return None


def autocast_reason(device_type: str) -> str | None:
    """Why no kernel may run on this type of device now; None if one may."""
    return "autocast is enabled" if torch.is_autocast_enabled(device_type) else None


def _only_default_devices() -> bool:
    """Whether all that is active is ``with torch.device(...)`` or ``torch.set_default_device``."""
    stack = _private("overrides._get_current_function_mode_stack", [None])()
    return all(isinstance(mode, DeviceContext) for mode in stack)


QUIET = (
    "compiler._is_compiling_flag",
    "dispatch_modes()",
    "function_modes() and not only_default_devices()",
    "forward_ad._current_level >= 0",
)
"""What must be false for ``ambient_reason()`` to be None: the same questions as expressions, for generated code.

Left out are ``HOOKS``, which are looked at together with a module's own, and tracing and transforms: they show
in the dispatch keys of every tensor, as autocast does, and ``forms`` compares those. A private name that some
torch has not raises here, and then the long way is taken.
"""

QUIET_NAMES: Mapping[str, Any] = MappingProxyType(
    {
        "compiler": torch.compiler,
        "dispatch_modes": getattr(torch._C, "_len_torch_dispatch_stack", None),
        "function_modes": getattr(torch._C, "_len_torch_function_stack", None),
        "only_default_devices": _only_default_devices,
        "forward_ad": forward_ad,
    }
)
"""What the names in ``QUIET`` stand for."""
