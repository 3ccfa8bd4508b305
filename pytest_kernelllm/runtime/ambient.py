"""What surrounds a call and rules the kernel out: compilers, tracers, transforms, autocast."""

from __future__ import annotations

import operator
from collections.abc import Callable
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
_transform = _private("_C._functorch.peek_interpreter_stack", None)
_dispatch_modes = _private("_C._len_torch_dispatch_stack", 0)
_function_modes = _private("_C._len_torch_function_stack", 0)


def ambient_reason() -> str | None:
    """Why no kernel may run now, whatever the call; None if one may."""
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export sees the original"
    if _tracing_state() is not None:
        return "torch.jit is tracing"
    if _transform() is not None:
        return "a torch.func transform (vmap, grad) is active"
    if _dispatch_modes():
        return "a torch dispatch mode is active"
    if _function_modes() and not _only_default_devices():
        return "a torch function mode is active"
    if _hooks._global_forward_hooks or _hooks._global_forward_pre_hooks:
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
