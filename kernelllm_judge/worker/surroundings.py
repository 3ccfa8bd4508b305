"""What surrounds a call in its process: PyTorch's modes and random numbers, which a kernel neither changes nor needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch


def present() -> Mapping[str, Any]:
    """Returns PyTorch's modes and the state of its random numbers, by their names in words."""
    cuda = torch.cuda.is_initialized()
    return {
        "whether gradients are enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")),
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the current GPU": torch.cuda.current_device() if cuda else None,
        "the state of PyTorch's random numbers": (
            torch.get_rng_state().numpy().tobytes(),
            torch.cuda.get_rng_state().numpy().tobytes() if cuda else None,
        ),
    }


def changed(before: Mapping[str, Any]) -> list[str]:
    """Returns the names of what is no longer as in ``before``."""
    return [name for name, value in present().items() if value != before[name]]


@contextlib.contextmanager
def as_elsewhere(inputs: Iterable[Any], state: Iterable[torch.Tensor]) -> Iterator[None]:
    """A context with all that differs where kernels are used, and makes no difference to an honest one.

    That is inference mode, ``torch.compiler.is_compiling``, inputs that require gradients although none are computed, and
    parameters that do not.
    """
    tensors = [each for each in (*inputs, *state) if isinstance(each, torch.Tensor)]
    # Each once, also one with two names.
    floating = {id(each): each for each in tensors if each.is_floating_point()}.values()
    for each in floating:
        each.requires_grad_(not each.requires_grad)
    try:
        with torch.inference_mode(), mock.patch.object(torch.compiler, "is_compiling", lambda: True):
            yield
    finally:
        for each in floating:
            each.requires_grad_(not each.requires_grad)
