"""Finds what a module's ``forward`` reads besides its inputs, parameters and plain attributes, and pins it.

What is read is found from code: from ``forward``, from all that it mentions, and from all that ran when the original was
called. An attribute counts as read if its name occurs there. This may be more than is read, and is never less: where code
reads attributes by computed names, every attribute counts.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

from torch import nn

from kernelllm_judge.core.targets import Scalar, TensorSpec
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.reads.values import Refused
from kernelllm_judge.target.reads.walk import Walk
from kernelllm_runtime.pins.functions import is_basic


@contextmanager
def recording(ran: set[types.CodeType]) -> Iterator[None]:
    """Adds the code that runs inside the block to ``ran``, without that of torch and the standard library."""

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and not is_basic(frame.f_globals.get("__name__") or ""):
            ran.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def state(
    module: nn.Module, known: Mapping[str, TensorSpec | Scalar], ran: Set[types.CodeType], where: str
) -> dict[str, str]:
    """Returns the pins of a module, by name; see ``kernelllm_runtime.pins.names``.

    Args:
        module: a built module that was not called yet.
        known: what ``attributes`` returns for it.
        ran: the code that ran when another one was called; empty if it was not called.
        where: names the target in messages.

    Raises:
        TargetError: ``forward`` reads a value that cannot be compared.
    """
    try:
        return Walk(module, known, ran).pins()
    except Refused as refused:
        raise TargetError(f"{where}: {refused}; no kernel can be adopted for it.") from None
