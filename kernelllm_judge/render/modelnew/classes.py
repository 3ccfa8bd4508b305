"""Resolves what a class of a completion inherits from the completion's other classes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from kernelllm_judge.core.syntax import dotted


def whole_class(cls: ast.ClassDef, top: Mapping[str, ast.stmt]) -> ast.ClassDef:
    """Returns a class with the members of its bases, without these bases.

    What it overrides is kept as ``_Base_name``, which ``super().name(...)`` then calls.
    """
    bases = [top.get(dotted(base) or "") for base in cls.bases]
    own = [base for base in bases if isinstance(base, ast.ClassDef) and base is not cls]
    if not own:
        return cls
    base = whole_class(own[0], {name: node for name, node in top.items() if node is not cls})
    result = copy.deepcopy(cls)
    mine = {node.name for node in result.body if isinstance(node, ast.FunctionDef)}
    result.body = [*(n for n in copy.deepcopy(base.body) if getattr(n, "name", "") not in mine), *result.body]
    result.bases = []
    return result
