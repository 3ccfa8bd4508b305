"""Reads output structures such as ``{"tuple": [{"tensor": 0}, {"value": None}]}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernelllm_judge.render.inductor.names import as_identifier


def outputs(output: Any) -> Iterator[int]:
    """Yields the numbers of the results that an output structure contains."""
    if isinstance(output, dict):
        if "tensor" in output:
            yield output["tensor"]
        parts = [*output.get("tuple", ()), *output.get("list", ()), *output.get("dict", {}).values()]
        for part in parts:
            yield from outputs(part)


def structure(output: Any, texts: Mapping[int, str]) -> str:
    """Writes the expression that builds an output structure."""
    if "tensor" in output:
        return texts[output["tensor"]]
    if "value" in output:
        return repr(output["value"])
    if "dict" in output:
        items = (f"{key!r}: {structure(part, texts)}" for key, part in output["dict"].items())
        return "{" + ", ".join(items) + "}"
    if "list" in output:
        return "[" + ", ".join(structure(part, texts) for part in output["list"]) + "]"
    parts = [structure(part, texts) for part in output["tuple"]]
    whole = f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    return f"{output['type']}({whole})" if "type" in output else whole


def output_name(output: Any, number: int) -> str:
    """Returns a name for one result: its key if it is an entry of a dict, else ``out``."""
    for key, part in output.get("dict", {}).items():
        if number in outputs(part) and str(key).isidentifier():
            return as_identifier(str(key))
    return "out"
