"""The text of an emitted program."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


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
    forward: tuple[str, ...]
    backward: tuple[str, ...]

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


def _method(name: str, parameters: Sequence[str], statements: Sequence[str]) -> str:
    lines = textwrap.indent("\n".join(statements), 8 * " ")
    return f"    @staticmethod\n    def {name}({', '.join(['ctx', *parameters])}):\n{lines}\n"


@dataclass(frozen=True)
class ProgramText:
    """The text of one program."""

    kernels: tuple[str, ...]
    """The kernels' definitions, in the order of their launches."""
    names: tuple[str, ...]
    statements: tuple[str, ...]
    """The statements of ``forward``, not indented."""
    helpers: frozenset[str]
    """The device functions that the kernels call."""
    function: AutogradText | None = None
    """The autograd function that the statements apply, if gradients are needed."""
