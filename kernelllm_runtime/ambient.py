"""Detects surroundings in which no kernel may run: compilers, tracers, transforms, autocast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as _hooks
from torch.nn.utils import parametrize
from torch.utils._device import DeviceContext


def _private(path: str, default: Any) -> Callable[[], Any]:
    """A private function of torch, or one that returns ``default`` if this torch does not have it."""
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
"""Hooks on all modules; torch fills and empties these dictionaries, and never replaces them."""


def ambient_reason() -> str | None:
    """Returns why no kernel may run now, whatever the call; None if one may."""
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
    if parametrize._cache_enabled:
        return "parametrizations are cached, so a weight may be older than what it is computed from"
    if torch.get_default_dtype() is not torch.float32:
        return "the default dtype is not float32, with which kernels are verified"
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "forward-mode gradients are active"
    return None


def autocast_reason(device_type: str) -> str | None:
    """Returns why no kernel may run on this type of device now; None if one may."""
    return "autocast is enabled" if torch.is_autocast_enabled(device_type) else None


def _only_default_devices() -> bool:
    """Whether only ``with torch.device(...)`` or ``torch.set_default_device`` is active."""
    stack = _private("overrides._get_current_function_mode_stack", [None])()
    return all(isinstance(mode, DeviceContext) for mode in stack)


QUIET = (
    "compiler._is_compiling_flag",
    "dispatch_modes()",
    "function_modes() and not only_default_devices()",
    "forward_ad._current_level >= 0",
    "parametrize._cache_enabled",
    "default_dtype() is not float32",
)
"""The conditions of ``ambient_reason()`` as expressions for generated code; all must be false for a kernel to run.

``HOOKS`` are left out: they are checked together with a module's own. So are tracing and transforms: like autocast
they show in the dispatch keys of every tensor, which ``forms`` compares. A private name that is missing in some
version of torch raises an exception here, and the full check runs instead.
"""

QUIET_NAMES: Mapping[str, Any] = MappingProxyType(
    {
        "compiler": torch.compiler,
        "dispatch_modes": getattr(torch._C, "_len_torch_dispatch_stack", None),
        "function_modes": getattr(torch._C, "_len_torch_function_stack", None),
        "only_default_devices": _only_default_devices,
        "forward_ad": forward_ad,
        "parametrize": parametrize,
        "default_dtype": torch.get_default_dtype,
        "float32": torch.float32,
    }
)
"""The values of the names in ``QUIET``."""
