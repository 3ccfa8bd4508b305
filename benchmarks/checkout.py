"""Imports KernelBench from a checkout, without what it needs for prompts, downloads and rented machines."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

CLIENTS = ("dotenv", "litellm", "modal", "openai", "pydra", "requests", "tqdm")
"""What KernelBench imports beside PyTorch; no evaluation calls any of it."""


def import_from(checkout: Path) -> None:
    """Makes ``kernelbench`` importable; packages that it needs and that are not installed may lie in ``checkout/deps``."""
    sys.path[:0] = [str(checkout / "src"), str(checkout / "deps")]
    for name in CLIENTS:
        if importlib.util.find_spec(name) is None:
            client = _Client(name)
            client.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = client


def script(checkout: Path, name: str) -> types.ModuleType:
    """Returns one of KernelBench's scripts, imported as a module; ``import_from`` comes first."""
    spec = importlib.util.spec_from_file_location(name, checkout / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


class _Client(types.ModuleType):
    """Stands for a package that is not called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what looks at modules asks for a file
            raise AttributeError(name)
        return type(name, (_Anything,), {})


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Anything(metaclass=_Meta):
    """Takes any call, and is a decorator that changes nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and not kwargs and isinstance(args[0], type | types.FunctionType)
        return args[0] if decorated else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self
