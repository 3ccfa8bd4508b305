"""Lists what a ``forward`` can read: its parameters and the parts of ``self``, by expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernelllm_judge.core.records import Domain, Scalar, TensorSpec
from kernelllm_judge.render.errors import RenderError

if TYPE_CHECKING:  # it imports torch, and a search does without
    from kernelllm_judge.core.parts import Parts


def visible(domain: Domain, parts: Parts) -> dict[str, TensorSpec | Scalar]:
    """Returns the inputs and attributes of a domain by expression: ``x``, ``self.net[0].weight``.

    Attributes without an expression are left out.
    """
    own = {parts.expression(name): value for name, value in domain.attributes.items()}
    return {**domain.inputs, **{text: value for text, value in own.items() if text is not None}}


def is_own(expression: str) -> bool:
    """Whether an expression starts at ``self``."""
    return re.match(r"self\b", expression) is not None


def reached(path: str, parts: Parts) -> str:
    """Returns the expression for a path in an Inductor completion's header, such as ``self.net.0.weight`` or an input."""
    if not path.startswith("self."):
        return path
    expression = parts.expression(path.removeprefix("self."))
    if expression is None:
        raise RenderError(f"No Python expression reaches the attribute `{path.removeprefix('self.')}`.")
    return expression
