"""The text of an emitted program; allocations stay separate until all dtypes are known."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from kernelllm_judge.render.inductor.kernel_text import call_text


@dataclass(frozen=True)
class Allocation:
    """A statement that allocates a buffer."""

    head: str
    sizes: tuple[str, ...]
    """The shape, and the strides if they are not row-major."""
    dtypes: tuple[str, ...]
    """The dtype (``torch.float32``) in each domain that the text serves."""
    reference: str
    """The tensor whose device is used."""
    references: tuple[str, ...]
    """The dtype of the reference in each domain."""
    output: bool

    def text(self) -> str | None:
        """Writes the statement; returns None if no single text gives the right dtype in every domain."""
        same = self.dtypes == self.references
        if len(set(self.dtypes)) == 1 and not (same and (self.output or self.dtypes[0] != "torch.float32")):
            dtype = self.dtypes[0]
        elif same:
            dtype = f"{self.reference}.dtype"
        else:
            return None
        return call_text(
            self.head, [*self.sizes, f"dtype={dtype}", f"device={self.reference}.device"], indent=4
        )


Statements = tuple[str | Allocation, ...]


@dataclass(frozen=True)
class AutogradText:
    """The text of a ``torch.autograd.Function``."""

    name: str
    saved: tuple[str, ...]
    """What it keeps for its backward pass."""
    recomputed: tuple[str, ...]
    """The operations that its backward pass repeats."""
    parameters: tuple[str, ...]
    """The parameters of its forward pass, without ``ctx``."""
    incoming: tuple[str, ...]
    """The parameters of its backward pass, without ``ctx``: one for each tensor that the forward pass returns."""
    forward: Statements
    backward: Statements

    def text(self) -> str:
        """Writes the class."""
        kept = " and ".join(filter(None, [", ".join(self.saved[:-1]), *self.saved[-1:]])) or "no tensors"
        repeated = f" Recomputed there: {', '.join(self.recomputed)}." if self.recomputed else ""
        return (
            f"class {self.name}(torch.autograd.Function):\n"
            f"    # Saved for the backward pass: {kept}.{repeated}\n"
            f"{_method('forward', self.parameters, self.forward)}\n"
            f"{_method('backward', self.incoming, self.backward)}"
        )


def _method(name: str, parameters: Sequence[str], statements: Statements) -> str:
    lines = textwrap.indent("\n".join(written(statements)), 8 * " ")
    return f"    @staticmethod\n    def {name}({', '.join(['ctx', *parameters])}):\n{lines}\n"


def written(statements: Statements) -> list[str]:
    """Returns statements as text."""
    return [s if isinstance(s, str) else s.text() or "" for s in statements]


@dataclass(frozen=True)
class ProgramText:
    """The text of one program."""

    kernels: tuple[str, ...]
    """The kernels' definitions, in the order of their launches."""
    names: tuple[str, ...]
    statements: Statements
    """The statements of ``forward``, not indented."""
    helpers: frozenset[str]
    """The device functions that the kernels call."""
    function: AutogradText | None = None
    """The autograd function that the statements apply, if gradients are needed."""

    def lines(self) -> list[str]:
        """Returns the statements as text."""
        return written(self.statements)
