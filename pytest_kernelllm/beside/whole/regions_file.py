"""Writes regions as an ordinary source file: a marked module for each, which ``pytest --kernelllm`` judges like any other."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from pathlib import Path

import torch

from kernelllm_judge.core.syntax import snake_case
from pytest_kernelllm.beside.whole.capture import Found
from pytest_kernelllm.beside.whole.drawn import draw
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.suggest.style import Style

IMPORTS = """\
import torch
from torch import nn

from kernelllm_runtime import triton_candidate
"""

_TITLE = '''\
"""Regions of {model}, from one operation of the library to the next, as `kernelllm optimize` cut them out.

They are alike in memory and in what they compute wherever they occur in the model.
"""

'''

DRAWABLE = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
"""Dtypes of inputs that can be drawn."""


def drawable(found: Found) -> bool:
    """Returns whether inputs of a region can be drawn."""
    return all(layout.dtype in DRAWABLE for layout in found.text.inputs)


def regions_file(store: Path, model: str, found: Sequence[Found]) -> Path:
    """Returns a file in a store, named by a model and its regions: a process that imported one can import the next."""
    digest = hashlib.sha256(" ".join(each.text.key for each in found).encode()).hexdigest()
    return store / "regions" / f"{snake_case(model)}_{digest[:8]}.py"


def regions_source(model: str, found: Sequence[Found]) -> str:
    """Returns the file's text."""
    return _TITLE.format(model=model) + IMPORTS + "".join(map(block, found))


def block(found: Found) -> str:
    """Returns the source of one region's class, with its inputs."""
    text = found.text
    name = f"{snake_case(text.name)}_inputs"
    drawn = [
        draw(layout, number in found.positive, found.bands.get(number))
        for number, layout in enumerate(text.inputs)
    ]
    places = ", ".join(found.places[:4]) + (", …" if len(found.places) > 4 else "")
    where = f"Occurs {counted(found.times, 'time')} in {places or 'the model'}."
    body = textwrap.indent(text.forward, "    ")
    return f'''

def {name}():
    return ({", ".join(drawn)},)


@triton_candidate(inputs={name}, dims={{}})
class {text.name}(nn.Module):
    """{where}"""

{body}
'''


def write_source(file: Path, source: str) -> None:
    """Writes a source file, formatted as its project is; one that holds the same already stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    edited = Style(file.parent).edited(file.name, b"", source.encode())
    if not file.exists() or file.read_bytes() != edited:
        file.write_bytes(edited)
