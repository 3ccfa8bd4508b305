"""A project of a few lines, and the module that its one target becomes."""

from __future__ import annotations

import itertools
import sys
import textwrap
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.models.prompt import standalone
from pytest_kernelllm.models.prompt.inputs import order

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

from pytest_kernelllm import triton_candidate


def rows(n=4):
    return torch.randn(n, 8)

"""

_numbers = itertools.count()


def target_of(
    folder: Path, layers: str, others: Mapping[str, str] | None = None, head: str = HEAD
) -> LiveTarget:
    """The one target of a package with ``layers.py`` and other modules; ``PACKAGE`` in a text is its name."""
    package = f"project_{next(_numbers)}"
    files = {"layers.py": head + textwrap.dedent(layers), **(others or {})}
    for name, text in files.items():
        path = folder / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("PACKAGE", package))
        (path.parent / "__init__.py").touch()
    found = scan([folder / package / "layers.py"], folder)
    assert not found.problems
    return load_target(folder, found.targets[0])


def written(folder: Path, layers: str, others: Mapping[str, str] | None = None, head: str = HEAD) -> str:
    """The module for the first case of that target, after seeing that it computes the same in every case."""
    live = target_of(folder, layers, others, head)
    texts = [standalone(live, case) for case in live.cases]
    for case, text in zip(live.cases, texts, strict=True):
        space = executed(text)
        original, model = live.build(case), space["Model"](*space["get_init_inputs"]())
        model.to(getattr(torch, case.dtype or "float32")).load_state_dict(original.state_dict())
        bound = nested(live.bind(live.inputs(case, 3)))
        torch.manual_seed(3)
        given = space["get_inputs"]()
        assert type(given) is list
        names = order(live.signature, bound, "forward")
        for name, value in zip(names, given, strict=True):
            expected = bound.get(name, live.signature.parameters[name].default)
            assert described(value) == described(expected)
        with torch.no_grad():
            expected = original(**dict(zip(names, given, strict=True)))
            torch.testing.assert_close(model.eval()(*given), expected, rtol=0, atol=0, equal_nan=True)
    return texts[0]


def described(value: Any) -> Any:
    """What inputs must have in common: shape and dtype of tensors, and other values themselves."""
    if isinstance(value, tuple | list):
        return type(value)(map(described, value))
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value


def executed(text: str) -> dict[str, Any]:
    """The names of a module that is run with neither the project nor this package importable."""
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(("project_", "pytest_kernelllm", "kernelllm_runtime"))
    }
    module = types.ModuleType("standalone_module")
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    try:
        sys.modules.update(dict.fromkeys(hidden))  # None: importing it fails
        exec(compile(text, "<module>", "exec"), vars(module))
    finally:
        sys.modules.update(hidden)
        del sys.modules[module.__name__]
    return vars(module)
