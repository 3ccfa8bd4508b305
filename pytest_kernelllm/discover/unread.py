"""Checks that ``forward`` does not read the attributes that a marker calls unread, so that kernels run whatever they are.

The original is called without data, at the sizes of each case and at the smallest ones. What it does then cannot depend on the
values in its tensors, and all other values that it reads are part of the domain: so no call in the domain reads more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.core.arguments import nested
from pytest_kernelllm.core.targets import Case
from pytest_kernelllm.discover.attributes import is_scalar
from pytest_kernelllm.discover.calls import seeded
from pytest_kernelllm.discover.errors import TargetError, in_one_line
from pytest_kernelllm.discover.work import empty_inputs


def check_unread(module: nn.Module, names: Sequence[str], cases: Sequence[Case], where: str) -> None:
    """Calls the original without data and watches the attributes.

    Args:
        module: the original on the meta device; left as it was, except for what a call changes.
        names: dotted names of the attributes.
        cases: the cases of the target.
        where: names the target in messages.

    Raises:
        TargetError: an attribute does not exist, is no plain value, or is read; or the original does not run without data.
    """
    for name in names:
        owner, _, attribute = name.rpartition(".")
        try:
            held = vars(module.get_submodule(owner))
        except AttributeError:
            held = {}
        if attribute not in held or not is_scalar(held[attribute]):
            raise TargetError(f"{where}: unread names {name!r}, which is no plain attribute of the module.")
    for case in cases:
        for sizes in (case.sizes, {name: low for name, (low, _) in case.domain.dims.items()}):
            read: set[str] = set()
            try:
                with _watched(module, names, read), seeded(0, "meta"), torch.no_grad():
                    module(**nested(empty_inputs(case, sizes)))
            except Exception as error:  # the user's code may raise anything
                text = f"{where}: whether it reads {', '.join(names)} cannot be told, because it does not run without data"
                raise TargetError(f"{text}: {in_one_line(error)}; take unread= out of the marker.") from error
            if read:
                raise TargetError(
                    f"{where}: forward reads {', '.join(sorted(read))}; take it out of the marker's unread=."
                )


@contextlib.contextmanager
def _watched(module: nn.Module, names: Sequence[str], read: set[str]) -> Iterator[None]:
    """Adds to ``read`` which of the attributes are read inside the block."""
    parts: dict[str, dict[str, str]] = {}
    for name in names:
        owner, _, attribute = name.rpartition(".")
        parts.setdefault(owner, {})[attribute] = name
    classes = {owner: type(module.get_submodule(owner)) for owner in parts}
    try:
        for owner, watched in parts.items():
            object.__setattr__(
                module.get_submodule(owner), "__class__", _watching(classes[owner], watched, read)
            )
        yield
    finally:
        for owner, cls in classes.items():
            object.__setattr__(module.get_submodule(owner), "__class__", cls)


def _watching(cls: type[nn.Module], watched: dict[str, str], read: set[str]) -> type[nn.Module]:
    def get(self: Any, name: str) -> Any:
        if name in watched:
            read.add(watched[name])
        return cls.__getattribute__(self, name)

    return type(cls.__name__, (cls,), {"__getattribute__": get, "__module__": cls.__module__})
