"""Names the stage of the user's code that is running, so that whoever watches from outside can set it a deadline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

InStage = Callable[[str], AbstractContextManager[None]]
"""Returns a context for the time that a stage runs, given by its name: "drawing the inputs".

Stages may lie inside each other; the outer one's time starts anew after an inner one."""

IMPORTING = "importing the original"
BUILDING = "building the original"
DRAWING = "drawing inputs"
RUNNING = "running the original"


def unwatched(stage: str) -> AbstractContextManager[None]:
    """An ``InStage`` that reports to nobody."""
    return contextlib.nullcontext()
