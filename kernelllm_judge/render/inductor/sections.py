"""Reads and writes the text of an Inductor completion: a section per case with a JSON header and output code.

The header has what the code does not show: which argument is which attribute or input, the structure of the
outputs, and the domain. Standard library only, so that a stored completion can be read anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelllm_judge.core.records import Case, Record, TensorSpec
from kernelllm_judge.render.errors import RenderError

MARK = "# kernelllm-inductor: "
BACKWARD = "\n# kernelllm-backward\n"
"""Stands between the code of a forward pass and that of its backward pass."""


@dataclass(frozen=True)
class Passed(Record):
    """What a backward pass gets: a result of the forward pass, or the gradient of one."""

    name: str
    """What it is: an argument's expression, an operation such as ``rsqrt``, or a named dimension."""
    result: int
    """The number of the result of ``call``."""
    spec: TensorSpec | None = None
    """Its dtype and shape, if it is a contiguous tensor whose sizes have names."""
    size: bool = False
    """Whether it is a number, not a tensor."""


@dataclass(frozen=True)
class Backward(Record):
    """TorchInductor's code for the backward pass of a case, whose ``call`` takes ``saved`` and then ``incoming``."""

    saved: tuple[Passed, ...]
    """Results of the forward pass."""
    incoming: tuple[Passed, ...]
    """Gradients of outputs."""
    gradients: tuple[int, ...]
    """The number of the forward pass's argument that each of its results is the gradient of."""
    recomputed: tuple[str, ...] = ()
    """The operations of the forward pass that it repeats."""
    launches: dict[str, dict[str, int]] = field(default_factory=dict)
    """See ``Section.launches``."""


@dataclass(frozen=True)
class Section(Record):
    """TorchInductor's code for one case."""

    case: Case
    arguments: tuple[str, ...]
    """The value of each argument of ``call``, in order: ``self.fc.weight`` or a parameter of ``forward``."""
    output: Any
    """Outputs as nested ``{"tuple": [...]}``, ``{"list": [...]}``, ``{"dict": {...}}`` and ``{"tensor": n}``,
    constants as ``{"value": ...}``; ``"type": "torch.return_types.max"`` beside a tuple names what is made of it."""
    scalars: dict[str, str] = field(default_factory=dict)
    """The attributes behind named numbers in the kernels: ``{"eps": "self.eps"}``."""
    launches: dict[str, dict[str, int]] = field(default_factory=dict)
    """The block sizes (``XBLOCK``…), ``num_warps`` and perhaps ``num_stages`` of each kernel, by its name in the source."""
    backward: Backward | None = None
    """The backward pass, if the case needs gradients; its code follows the forward pass's after ``BACKWARD``."""
    source: str = ""


def write(sections: Iterable[Section]) -> str:
    """Writes sections as the text of a completion."""
    parts = []
    for section in sections:
        header = section.to_json()
        source = header.pop("source").strip("\n")
        if section.backward is None:
            del header["backward"]
        parts.append(f"{MARK}{json.dumps(header)}\n{source}\n")
    return "\n".join(parts)


def is_sections(text: str) -> bool:
    """Whether a text was written by ``write``."""
    return text.startswith(MARK)


def read(text: str) -> Sequence[Section]:
    """Reads the sections of a completion's text."""
    sections = []
    for chunk in ("\n" + text).split("\n" + MARK)[1:]:
        header, _, source = chunk.partition("\n")
        try:
            sections.append(Section.from_json({**json.loads(header), "source": source}))
        except ValueError as error:
            raise RenderError(
                f"The header of section {len(sections) + 1} of the completion cannot be read ({error})."
            ) from None
    return sections
