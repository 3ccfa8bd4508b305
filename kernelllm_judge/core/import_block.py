"""Orders the imports at the top of a kernel module, so that import sorters find nothing to change."""

from __future__ import annotations

import ast
import sys
from collections import Counter

from kernelllm_judge.core.program import UNREADABLE, parse

_OURS = "import torch\nimport triton\nimport triton.language as tl\n"


def sorted_imports(body: str) -> tuple[str, str]:
    """Returns the imports that a kernel module needs, as import sorters order them, and its body without any.

    Args:
        body: kernels, helpers and ``forward``. Imports of its own are moved; torch, triton and ``tl`` are added if used.
    """
    try:
        tree = parse(body)
    except UNREADABLE:
        return _OURS, body
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    ours = [node for node in parse(_OURS).body if isinstance(node, ast.Import)]
    chosen: list[ast.Import | ast.ImportFrom] = [
        n for n in ours if (n.names[0].asname or n.names[0].name) in used
    ]
    lines, alone = body.splitlines(keepends=True), Counter(n.lineno for n in tree.body)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and alone[node.lineno] == 1:
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
            chosen += [node] if isinstance(node, ast.ImportFrom) else [ast.Import([n]) for n in node.names]
    groups: dict[int, dict[str, None]] = {0: {}, 1: {}, 2: {}}  # each a set that keeps its order
    for node in sorted(chosen, key=_import_order):
        groups[_import_order(node)[0]][f"{ast.unparse(node)}\n"] = None
    return "\n".join("".join(group) for group in groups.values() if group), "".join(lines)


def _import_order(node: ast.Import | ast.ImportFrom) -> tuple[int, bool, str]:
    """The future, the standard library, others; in each ``import`` before ``from``."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
    root = module.partition(".")[0]
    group = 0 if root == "__future__" else 1 if root in sys.stdlib_module_names else 2
    return group, isinstance(node, ast.ImportFrom), module
