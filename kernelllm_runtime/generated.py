"""Generates functions from source text for what runs at every call: straight code without loops and lookups."""

from __future__ import annotations

import functools
import hashlib
import linecache
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TEXTS = 512
"""Most compiled texts that are cached; modules of the same structure share one."""


def define(name: str, text: str, values: Mapping[str, Any]) -> types.FunctionType:
    """Compiles a function from its source text."""
    function: types.FunctionType = _factory(name, text, tuple(values))(*values.values())
    return function


def holding(
    name: str, parameters: Sequence[str], conditions: Sequence[str], then: str, otherwise: str
) -> str:
    """Returns the text of a function that returns ``then`` if all conditions hold, else ``otherwise``.

    A condition that raises does not hold: what it reads is gone, or an attribute's own code fails.
    """
    conjunction = "\n            and ".join(conditions)
    return (
        f"def {name}({', '.join(parameters)}):\n"
        "    try:\n"
        "        if (\n"
        f"            {conjunction}\n"
        "        ):\n"
        f"            return {then}\n"
        "    except Exception:\n"
        "        pass\n"
        f"    return {otherwise}"
    )


@functools.lru_cache(maxsize=_TEXTS)
def _factory(name: str, text: str, names: tuple[str, ...]) -> Callable[..., Any]:
    source = f"def make({', '.join(names)}):\n{textwrap.indent(text, '    ')}\n    return {name}\n"
    file = f"<kernelllm {name} {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    # Tracebacks and debuggers show these lines.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(source, file, "exec"), space)
    return space["make"]  # type: ignore[no-any-return]  # the text just compiled defines it
