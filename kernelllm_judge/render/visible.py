"""Lists what a ``forward`` can read: its parameters and the parts of ``self``, by expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Domain, Scalar, TensorSpec
from kernelllm_judge.render.errors import RenderError
from kernelllm_runtime.leaves import KIND, containers

if TYPE_CHECKING:  # it imports torch, and a search does without
    from kernelllm_judge.core.parts import Parts


@dataclass(frozen=True)
class Container:
    """A tuple, list or dict among the inputs."""

    kind: str
    count: int


Spec = TensorSpec | Scalar | Container


def visible(domain: Domain, parts: Parts) -> dict[str, Spec]:
    """Returns the inputs and attributes of a domain by expression: ``x``, ``features``, ``features[0]``, ``self.net[0].weight``.

    Attributes without an expression are left out.
    """
    given = nested(domain.inputs)
    held = {path: each for name, value in given.items() for path, each in containers(name, value)}
    inputs = {name: value for name, value in domain.inputs.items() if not name.endswith(KIND)}
    own = {parts.expression(name): value for name, value in domain.attributes.items()}
    return {
        **{path: Container(type(each).__name__, len(each)) for path, each in held.items()},
        **inputs,
        **{text: value for text, value in own.items() if text is not None},
    }


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
