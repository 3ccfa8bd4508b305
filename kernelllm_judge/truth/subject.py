"""Defines what the judge needs to know of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from kernelllm_judge.core.records import Case


class Subject(Protocol):
    """What the judge needs to know of a target; ``discover.live.LiveTarget`` implements it."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes on which nothing may depend, by dotted name; whole numbers."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases of the target."""

    def case(self, name: str) -> Case:
        """Returns the case of that name."""

    def build(self, case: Case, device: str = "cpu") -> torch.nn.Module:
        """Returns a fresh module, equal to every other one built for this case."""

    def inputs(
        self, case: Case, seed: int, sizes: Mapping[str, int] | None = None, device: str = "cpu"
    ) -> Any:
        """Draws the arguments of a call with ``seed``."""

    def bind(self, call: Any) -> dict[str, Any]:
        """Returns the arguments of a call by parameter name."""
