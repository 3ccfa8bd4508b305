"""What every format is translated to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A problem and an answer to it."""

    reference: str
    """A file in KernelBench's form, or ``file.py::Class`` with a marked class."""
    candidate: str
    """The answer's text: a kernel module, or one with a class ``ModelNew`` or a function ``kernel_function``."""
