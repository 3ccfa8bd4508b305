"""Takes what a module returns apart where it is an instance of a dataclass, as outputs of transformers and diffusers are.

A kernel returns a dict of its fields, because it imports nothing of the project's; the dispatcher makes the instance.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from kernelllm_runtime.any_kernel import AGAIN, Unavailable


def fields_of(value: Any) -> dict[str, Any] | None:
    """Returns the fields of an instance of a dataclass, without those that are None as by default; None for anything else."""
    if isinstance(value, type) or not dataclasses.is_dataclass(value):
        return None
    given = {each.name: (getattr(value, each.name), each.default) for each in dataclasses.fields(value)}
    return {name: held for name, (held, default) in given.items() if held is not None or default is not None}


def class_name(value: Any) -> str:
    """Returns ``module:Class`` for an instance of a dataclass, as domains name what is returned; empty for anything else."""
    return "" if fields_of(value) is None else f"{type(value).__module__}:{type(value).__qualname__}"


def class_named(name: str) -> type:
    """Returns the class with such a name. Its module is not imported: the original's module has imported it.

    Raises:
        Unavailable: there is none.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise Unavailable(f"there is no dataclass {name}, which its outputs were when it was verified", AGAIN)
    return found
