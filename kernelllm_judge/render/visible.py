"""Lists what a ``forward`` can read: its parameters and the parts of ``self``, by expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Domain, Scalar, TensorSpec
from kernelllm_judge.render.errors import RenderError

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
    inputs = [each for name, value in nested(domain.inputs).items() for each in _opened(name, value)]
    own = {parts.expression(name): value for name, value in domain.attributes.items()}
    return {**dict(inputs), **{text: value for text, value in own.items() if text is not None}}


def _opened(name: str, value: Any) -> Iterator[tuple[str, Spec]]:
    if not isinstance(value, tuple | list | dict):
        yield name, value
        return
    yield name, Container(type(value).__name__, len(value))
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _opened(f"{name}[{key!r}]", part)


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
