"""Reads the catalogue: which kernels are cut out, and the PyTorch operation that each stands for.

``entries/PROJECT.toml`` contains one table for each pair. References, inputs and weights are ours; of the projects,
it contains only names.
"""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ENTRIES = Path(__file__).parent / "entries"


@dataclass(frozen=True)
class Entry:
    """One pair."""

    name: str
    file: str
    """The kernel's module, relative to the project's root."""
    names: str
    """What is cut out of it, separated by spaces."""
    arguments: str
    """Parameters of ``forward``, without ``self``."""
    inputs: str
    """Expressions that give those arguments."""
    reference: str
    """What the target computes: an expression, or statements that end with ``return``."""
    candidate: str
    """The same with the kernel."""
    weights: dict[str, str] = field(default_factory=dict)
    """The target's parameters: names and initial values."""
    buffers: dict[str, str] = field(default_factory=dict)
    """The target's buffers: names and initial values."""
    alias: str = ""
    """A statement of the candidate's module that follows the cut."""
    train: bool = False
    """Whether gradients are compared too."""

    def reference_source(self) -> str:
        """Returns ``reference.py``: in KernelBench's form, or a marked class where gradients are compared."""
        weights = [f"self.{name} = nn.Parameter({value})" for name, value in self.weights.items()]
        buffers = [f"self.register_buffer({name!r}, {value})" for name, value in self.buffers.items()]
        constructor = _function("__init__(self)", "\n".join(["super().__init__()", *weights, *buffers]))
        forward = _function(f"forward(self, {self.arguments})", _returning(self.reference))
        model = "class Model(nn.Module):\n" + textwrap.indent(f"{constructor}\n{forward}", "    ")
        parts = ["import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"]
        if self.train:
            parts += ["from pytest_kernelllm import triton_candidate\n"]
            parts += [_function("inputs()", f"return ({self.inputs},)")]
            parts += [f"@triton_candidate(inputs=inputs, dims={{}}, backward=True)\n{model}"]
        else:
            parts += [model, _function("get_inputs()", f"return [{self.inputs}]")]
            parts += [_function("get_init_inputs()", "return []")]
        return "\n\n".join(parts)

    def candidate_source(self, kernels: str) -> str:
        """Returns ``candidate.py``, a kernel module.

        Args:
            kernels: what was cut out for this entry.
        """
        forward = _function(f"forward(self, {self.arguments})", _returning(self.candidate))
        head = "import torch\nimport triton\nimport triton.language as tl\n"
        return "\n\n".join(part for part in (head, kernels, self.alias, forward) if part)


def read(project: str) -> list[Entry]:
    """Returns a project's entries; their names begin with the project's.

    Raises:
        TypeError: an entry has an unknown key, or lacks one.
    """
    with (ENTRIES / f"{project}.toml").open("rb") as file:
        tables = tomllib.load(file)
    return [Entry(f"{project}_{name}", **table) for name, table in tables.items()]


def _returning(code: str) -> str:
    code = code.strip()
    return code if "return " in code else f"return {code}"


def _function(signature: str, body: str) -> str:
    return f"def {signature}:\n" + textwrap.indent(body, "    ") + "\n"
