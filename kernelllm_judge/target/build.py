"""Builds a target's module as its marker describes, always with the original ``forward``."""

from __future__ import annotations

import copy
import functools
from types import MethodType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.target.calls import Call, as_call, seeded
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_runtime.domain import hooks
from kernelllm_runtime.returned import fields_of

_SEED = 20_261_121
"""The seed of initial parameters, so that two builds of a target are equal."""

_ORIGINAL = "__kernelllm_original__"
"""The attribute in which the dispatching ``forward`` of an adopted class keeps the original."""


def original_forward(cls: type[nn.Module]) -> Any:
    """Returns the ``forward`` that the user wrote, even if an adopted kernel's dispatcher has replaced it."""
    return getattr(cls.forward, _ORIGINAL, cls.forward)


def init_arguments(init: Any, where: str) -> Call | nn.Module:
    """Returns the constructor arguments from a marker's ``init``, or the ready module that its callable returns.

    Every call returns fresh objects, because a module that is built from them may keep or change them.

    Raises:
        TargetError: ``init`` has another form, or its callable fails.
    """
    if isinstance(init, nn.Module):
        raise TargetError(f"{where}: init= is a module; write `init=lambda: module`.")
    made = init
    if callable(init):
        try:
            with seeded(_SEED, "cpu"):
                made = init()
        except (Exception, SystemExit) as error:
            raise TargetError(f"{where}: its init callable fails: {in_one_line(error)}.") from error
        if isinstance(made, nn.Module):
            return _copied(made, where)
    call = as_call(made)
    if call is None:
        raise TargetError(
            f"{where}: init= gives a {type(made).__name__}; it must be a tuple, a dict of keyword arguments, "
            "(tuple, dict), or a callable that returns one of these or a ready module."
        )
    return copy.deepcopy(call)


def _copied(module: nn.Module, where: str) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # the user's classes may raise anything
        raise TargetError(
            f"{where}: the module that init returns cannot be copied ({in_one_line(error)}); build a new one in init, "
            "which is called each time."
        ) from error


def check_hooks(module: nn.Module, where: str) -> None:
    """Checks that no hook takes part in what a module computes: kernels do not run where a part has hooks.

    Raises:
        TargetError: a part has hooks, or the module's own compute a weight before each call.
    """
    for path, part in module.named_modules():
        registered = [hook for group in hooks(part) for hook in group.values()]
        # Copies of such a tensor are impossible, and it is no value that a domain could hold.
        computed = any(isinstance(each, torch.Tensor) and not each.is_leaf for each in vars(part).values())
        if registered and (path or computed):
            shown = f"`self.{path}`" if path else "the module"
            raise TargetError(
                f"{where}: {shown} has hooks that take part in its call, where no kernel can be adopted; "
                + _without(registered[0])
            )


def _without(hook: Any) -> str:
    if type(hook).__module__ in ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm"):
        name = type(hook).__module__.rpartition(".")[2]
        return f"use torch.nn.utils.parametrizations.{name} in place of torch.nn.utils.{name}."
    return "remove them, or mark another class."


def construct(cls: type[nn.Module], init: Any, where: str) -> nn.Module:
    """Builds a new instance on the CPU, with parameters drawn under a fixed seed.

    Raises:
        TargetError: the constructor fails.
    """
    made = init_arguments(init, where)
    if isinstance(made, Call):
        try:
            with seeded(_SEED, "cpu"):
                made = cls(*made.args, **made.kwargs)
        except (Exception, SystemExit) as error:
            missing = init == () and isinstance(error, TypeError)
            hint = "give its constructor's arguments with init=(...)" if missing else "check init="
            raise TargetError(f"{where} cannot be built: {in_one_line(error)}; {hint}.") from error
    if not isinstance(made, cls):
        raise TargetError(
            f"{where}: its init callable returns a {type(made).__name__}, not a {cls.__name__}."
        )
    for part in made.modules():
        if original := getattr(type(part).forward, _ORIGINAL, None):
            part.forward = MethodType(original, part)
    return made


def returning_fields(module: nn.Module) -> nn.Module:
    """Makes a module whose ``forward`` returns an instance of a dataclass return a dict of its fields, as kernels do."""
    original = original_forward(type(module))

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        fields = fields_of(found)
        return found if fields is None else fields

    module.forward = MethodType(forward, module)
    return module


def finished(module: nn.Module, dtype: str | None, device: str, training: bool) -> nn.Module:
    """Moves a module to ``device``, casts floating parameters and buffers to ``dtype`` and sets the mode, in place."""
    held = (*module.parameters(), *module.buffers())
    if dtype:
        floating = getattr(torch, dtype)
        # One by one: nn.Module.to(dtype) would make complex ones real.
        for tensor in held:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(floating)
    if any(tensor.device != torch.device(device) for tensor in held):
        module.to(device)  # which is impossible for tensors without data, even if they are there
    module.train(training)
    for part in module.modules():
        for name, value in vars(part).items():
            if type(value) is torch.Tensor:  # a plain attribute, which nn.Module.to does not move
                vars(part)[name] = value.to(device)
    return module
