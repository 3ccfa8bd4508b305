"""Says which names of an answer's ``ModelNew`` were mapped to other names of the target."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def mapped_names(answer: str, module: str) -> str:
    """Returns a clause that names both, or nothing where the answer reads what the kernel module made of it reads.

    Args:
        answer: code that defines ``ModelNew``.
        module: the kernel module.
    """
    mine, theirs = set(_read(answer, "ModelNew")), set(_read(module, "forward"))
    if not (mine - theirs and theirs - mine):
        return ""
    own, others = (", ".join(sorted(names)) for names in (mine - theirs, theirs - mine))
    return f"its own {own} stand for the module's {others}, by shape and first values"


def _read(source: str, name: str) -> Iterator[str]:
    """Yields the attributes of ``self`` that a class's methods other than ``__init__``, or a function, read."""
    for node in ast.parse(source).body:
        if getattr(node, "name", "") == name:
            parts = node.body if isinstance(node, ast.ClassDef) else [node]
            for part in parts:
                if getattr(part, "name", "") != "__init__":
                    yield from (
                        each.attr
                        for each in ast.walk(part)
                        if isinstance(each, ast.Attribute)
                        and isinstance(each.value, ast.Name)
                        and each.value.id == "self"
                    )
