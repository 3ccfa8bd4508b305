"""Builds the model that a user's factory returns, with the call that is ranked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from kernelllm_judge.target.calls import Call, as_call
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_judge.target.importing import import_file
from pytest_kernelllm.beside.ranking.construction import Constructions
from pytest_kernelllm.beside.ranking.errors import RankError

Factory = Callable[[], Any]

FORMS = "a tensor, a tuple of arguments, a dict of keyword arguments, (tuple, dict), or a callable that calls the model"


@dataclass(frozen=True)
class Subject:
    """A model with the call that is ranked."""

    model: nn.Module
    call: Call | Callable[[], object]
    constructions: Constructions = field(default_factory=Constructions)

    def run(self) -> object:
        """Makes the call."""
        if isinstance(self.call, Call):
            return self.model(*self.call.args, **self.call.kwargs)
        return self.call()

    def to(self, device: str) -> Subject:
        """Moves the model and the arguments to a device, in place; a callable must bring its own."""
        self.model.to(device)
        if not isinstance(self.call, Call):
            return self
        move = self.call.map(lambda value: tree_map_only(torch.Tensor, lambda t: t.to(device), value))
        return Subject(self.model, move, self.constructions)


def load_factory(reference: str, root: Path, by: str = "--model") -> Factory:
    """Imports ``module:factory`` or ``file.py:factory``.

    Args:
        reference: the module's dotted name or file, and the name of a function in it.
        root: the project root, from which modules are imported, also from its ``src``.
        by: what takes the reference, for messages.

    Raises:
        RankError: there is no such function, or its module cannot be imported.
    """
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name:
        raise RankError(f"{by} takes module:factory or file.py:factory, not {reference!r}.")
    if where.endswith(".py") and not Path(where).is_file():
        raise RankError(f"{by} {reference}: there is no file {where}.")
    try:
        if where.endswith(".py"):
            module = import_file(Path(where).resolve(), root)
        else:
            for folder in (root / "src", root, Path.cwd()):
                if str(folder) not in sys.path:
                    sys.path.insert(0, str(folder))
            module = importlib.import_module(where)
    except TargetError as error:
        raise RankError(f"{by} {reference}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RankError(f"{by} {reference}: {where} cannot be imported: {in_one_line(error)}.") from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        what = "has no" if found is None else "has no function"
        raise RankError(
            f"{by} {reference}: {where} {what} {name}; name a function that returns (model, example)."
        )
    return found  # type: ignore[no-any-return]  # checked when it is called


def build(factory: Factory, device: str | None) -> Subject:
    """Calls a factory.

    Args:
        factory: returns ``(model, example)`` or ``(model, args, kwargs)``.
        device: where tensors are made that name no device.

    Raises:
        RankError: it fails, or returns something else.
    """
    name = getattr(factory, "__qualname__", repr(factory))
    constructions = Constructions()
    try:
        with constructions.recording():
            if device:
                with torch.device(device):
                    made = factory()
            else:
                made = factory()
    except torch.OutOfMemoryError as error:
        raise RankError(
            f"{name} needs more memory than the GPU has; add --count to count bytes and FLOPs only."
        ) from error
    except (Exception, SystemExit) as error:
        raise RankError(f"{name} fails: {in_one_line(error)}.") from error
    if isinstance(made, tuple) and made and isinstance(made[0], nn.Module):
        if len(made) == 2:
            return Subject(made[0], call_of(made[1], name), constructions)
        if len(made) == 3 and isinstance(made[1], tuple | list) and isinstance(made[2], Mapping):
            return Subject(made[0], Call(tuple(made[1]), dict(made[2])), constructions)
    shown = (
        f"({', '.join(type(part).__name__ for part in made)})"
        if isinstance(made, tuple)
        else type(made).__name__
    )
    raise RankError(
        f"{name} returns {shown}; it must return (model, example), where example is the arguments of one call: {FORMS}."
    )


def call_of(example: Any, name: str) -> Call | Callable[[], object]:
    """Returns the call that an example describes.

    Raises:
        RankError: it has another form; ``name`` is who gave it.
    """
    if isinstance(example, Mapping):
        return Call((), dict(example))  # also what a tokenizer returns
    if callable(example) and not isinstance(example, torch.Tensor):
        return example  # type: ignore[no-any-return]
    call = as_call(example)
    if call is None:
        raise RankError(f"{name}: the example is a {type(example).__name__}; it must be {FORMS}.")
    return call
