"""What a conftest says about a target beyond its marker."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any


@dataclass(frozen=True)
class Overrides:
    """What a conftest says about a target beyond its marker."""

    inputs: Any = None
    """Used in place of the marker's ``inputs``: a callable, or callables by name."""
    tolerance: float | None = None
    """Largest allowed relative error."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with the code of the inputs callables; empty where the marker's are used."""
        if self.inputs is None:
            return ""
        makers = self.inputs if isinstance(self.inputs, Mapping) else {"": self.inputs}
        text = repr([(name, _code(maker)) for name, maker in makers.items()])
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _code(value: Any) -> Any:
    """What a callable does, as far as its own code says: bytecode, names, constants and defaults."""
    if isinstance(value, functools.partial):
        return _code(value.func), repr(value.args), repr(value.keywords)
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_code(constant) for constant in value.co_consts]
    if (code := getattr(value, "__code__", None)) is not None:
        return _code(code), repr(value.__defaults__), repr(value.__kwdefaults__)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))  # whose own order is another one in every process
    return getattr(value, "__qualname__", type(value).__qualname__) if callable(value) else repr(value)
