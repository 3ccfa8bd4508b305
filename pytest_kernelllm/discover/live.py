"""A target brought to life: its class imported, built, and called the way its marker says."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.discover.attributes import attributes
from pytest_kernelllm.discover.cases import Layout, Sizes, layout, used_dims
from pytest_kernelllm.discover.errors import TargetError, in_one_line
from pytest_kernelllm.discover.importing import import_file
from pytest_kernelllm.discover.marks import Mark, find_marks
from pytest_kernelllm.discover.resolve import Project
from pytest_kernelllm.marker import OPTIONS_ATTRIBUTE, Options, triton_candidate
from pytest_kernelllm.records import Case, Domain, Target

__all__ = ["Call", "LiveTarget", "TargetError", "load_target"]

_SEED = 20_261_121
"""Initial parameters are drawn under it, so that two builds of a target are equal."""

_ORIGINAL = "__kernelllm_original__"
"""Where the dispatching ``forward`` of an adopted class keeps the original."""

_TRIAL_ELEMENTS = 1 << 22
"""Inputs up to this many elements are run through the module for real when it cannot be tried without data."""


@dataclass(frozen=True)
class Call:
    """Arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveTarget:
    """A target's class with everything needed to build and call it. Made by ``load_target``."""

    target: Target
    cls: type[nn.Module]
    options: Options
    signature: inspect.Signature
    """Of the original ``forward``, without ``self``."""
    file: Path
    cases: tuple[Case, ...] = ()
    _makers: Mapping[str, Callable[..., Any]] = field(default_factory=dict, repr=False)
    """The inputs callable of each case."""

    def case(self, name: str) -> Case:
        """The case of that name.

        Raises:
            KeyError: there is none.
        """
        return next(case for case in self.cases if case.name == name) if name in self._makers else self._none(name)

