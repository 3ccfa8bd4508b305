"""The text of an Inductor completion: one section a case, a JSON header over TorchInductor's output code.

The header says what the code cannot: which argument is which attribute or input, how the outputs are put
together, and for which domain it was made. Standard library only, so that a stored completion can be
read anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_kernelllm.core.records import Case, Record
from pytest_kernelllm.generate.render.errors import RenderError

MARK = "# kernelllm-inductor: "


@dataclass(frozen=True)
class Tuning(Record):
    """How large the blocks of a variant are; the renderer turns this into block sizes for each kernel."""

    pointwise: int = 1024
    """Elements a program of a pointwise kernel handles."""
    reduction: int = 2048
    """Elements a program of a reduction holds at once, at most."""
    rows: int = 1
    """Rows a program of a reduction along contiguous memory handles."""
    pointwise_warps: int = 0
    """Warps of a pointwise kernel; 0 derives them from the block."""
    reduction_warps: int = 0
    """Warps of a reduction; 0 derives them from the block."""


@dataclass(frozen=True)
class Section(Record):
    """What was captured for one case."""

    case: Case
    arguments: tuple[str, ...]
    """What each wrapper argument is, in order: ``self.fc.weight`` or a parameter of ``forward``."""
    output: Any
    """Outputs as nested ``{"tuple": [...]}``, ``{"list": [...]}``, ``{"dict": {...}}`` and ``{"tensor": n}``,
    constants as ``{"value": ...}``; ``"type": "torch.return_types.max"`` beside a tuple names what is made of it."""
    scalars: dict[str, str] = field(default_factory=dict)
    """Names for numbers in the kernels, and the attributes that hold these: ``{"eps": "self.eps"}``."""
    tuning: Tuning = field(default_factory=Tuning)
    source: str = ""


def write(sections: Iterable[Section]) -> str:
    """The completion text of these sections."""
    parts = []
    for section in sections:
        header = section.to_json()
        source = header.pop("source").strip("\n")
        parts.append(f"{MARK}{json.dumps(header)}\n{source}\n")
    return "\n".join(parts)


def is_sections(text: str) -> bool:
    """Whether a text is one that ``write`` made."""
    return text.startswith(MARK)


def read(text: str) -> Sequence[Section]:
    """The sections of a completion text.

    Raises:
        RenderError: a header cannot be read.
    """
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
