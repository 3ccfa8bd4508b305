"""What a conftest says about a target beyond its marker."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Overrides:
    """What a conftest says about a target beyond its marker."""

    inputs: Any = None
    tolerance: float | None = None

    @property
    def key(self) -> str:
        """Part of the policy's name in verdicts given under these overrides; empty without any."""
        if self.inputs is None and self.tolerance is None:
            return ""
        makers = self.inputs.values() if isinstance(self.inputs, Mapping) else [self.inputs]
        code = [getattr(getattr(m, "__code__", None), "co_code", b"").hex() for m in makers]
        return f"+{self.tolerance}{hashlib.sha256(''.join(code).encode()).hexdigest()[:8]}"
