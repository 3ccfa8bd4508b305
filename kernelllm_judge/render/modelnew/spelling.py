"""Spells the names in a completion as a kernel module does, whether imported or not.

A kernel module imports ``torch``, ``triton``, ``triton.language as tl``, ``libdevice`` and modules of the standard library.
Other spellings of their members (``F.linear``, ``from triton.language import load``) are replaced by dotted names from there.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kernelllm_judge.core.syntax import (
    RemovingTransformer,
    bound_names,
    call_name,
    dotted,
    expression,
    imports_of,
    is_jitted,
    parameters,
)
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.lower import SAME, in_libdevice
from kernelllm_judge.render.undefined import STANDARD

_ALLOWED = frozenset(
    {"torch", "torch.nn", "torch.nn.functional", "triton", "triton.language", "triton.language.math"}
)
_FORGOTTEN: Mapping[str, str] = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "triton": "triton",
    "tl": "tl",
    "math": "math",
}
"""The usual meaning of names, for code that lacks the import."""


@dataclass(frozen=True)
class Imported:
    """What an import statement binds to a name."""

    module: str
    path: str
    """The dotted path of what the name stands for."""
    line: int


def imports(tree: ast.Module) -> dict[str, Imported]:
    """Returns all imports in a file, at any level, by the name that they bind."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, imported in imports_of(node):
                module = "." * imported.level + imported.module
                path = f"{module}.{imported.name}" if imported.name else module
                found[name] = Imported(module, path, node.lineno)
    return found


def resolved(path: str, imported: Mapping[str, Imported]) -> str:
    """Returns a dotted name as it would be written without imports."""
    root, dot, rest = path.partition(".")
    return imported[root].path + dot + rest if root in imported else path


def without_annotations(tree: ast.Module) -> ast.Module:
    """Removes annotations except those that Triton reads (``BLOCK: tl.constexpr``), in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for parameter in parameters(node.args, variadic=True):
                if not (is_jitted(node) and _is_constexpr(parameter.annotation)):
                    parameter.annotation = None
    return tree


def with_plain_reads(tree: ast.Module) -> ast.Module:
    """Writes ``getattr(x, "eps", 1e-5)`` as ``x.eps``, in place; it fails where there is no such attribute."""
    _PlainReads().visit(tree)
    return tree


class _PlainReads(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(name)), *_]):
                if name.isidentifier() and not keyword.iskeyword(name):
                    return ast.copy_location(ast.Attribute(owner, name, ast.Load()), node)
        return node


def _is_constexpr(annotation: ast.expr | None) -> bool:
    return annotation is not None and (dotted(annotation) or "").rpartition(".")[2] == "constexpr"


class Canonical(RemovingTransformer):
    """Spells names from torch, triton, tl and math; removes imports, prints and types of variables."""

    def __init__(
        self,
        imported: Mapping[str, Imported],
        defined: Collection[str],
        renamed: Mapping[str, str],
        constants: Mapping[str, ast.expr],
    ) -> None:
        """Prepares to spell the code of one completion."""
        self._imported, self._defined, self._renamed, self._constants = imported, defined, renamed, constants
        self._local: set[str] = set()
        self._in_kernel = False

    def statement(self, node: ast.stmt) -> ast.stmt:
        """Spells one top-level statement or method."""
        self._local = bound_names(node, imports=False) if isinstance(node, ast.FunctionDef) else set()
        self._in_kernel = is_jitted(node)
        result = self.visit(node)
        assert isinstance(result, ast.stmt)
        return ast.fix_missing_locations(result)

    def visit_Import(self, node: ast.Import) -> None:
        """Removes an import, whose names are spelt out where they are used."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Removes an import, whose names are spelt out where they are used."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Removes prints."""
        if isinstance(node.value, ast.Call) and call_name(node.value) == "print":
            return None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Turns ``x: int = 1`` into ``x = 1``, but not in kernels, where the annotation may be ``tl.constexpr``."""
        if self._in_kernel or node.value is None:
            return self.generic_visit(node)
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))  # type: ignore[no-any-return]  # typeshed: visit() -> Any

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Spells a dotted name that starts at an import."""
        path = dotted(node)
        root = path.split(".")[0] if path else ""
        if path is None or root in self._local or root in self._defined:
            return self.generic_visit(node)
        return ast.copy_location(expression(self._spell(path, node.lineno)), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Spells a single name, which may be local, defined at top level, imported, usual or unknown."""
        if node.id in self._local:
            return node
        if node.id in self._defined:
            if self._in_kernel and node.id in self._constants:
                return ast.copy_location(self._constants[node.id], node)
            return ast.copy_location(ast.Name(self._renamed.get(node.id, node.id), node.ctx), node)
        if isinstance(node.ctx, ast.Load):
            return ast.copy_location(expression(self._spell(node.id, node.lineno)), node)
        return node

    def _spell(self, path: str, line: int) -> str:
        root, dot, rest = path.partition(".")
        if origin := self._imported.get(root):
            full = resolved(path, self._imported)
            if not _may_import(origin, full):
                raise RenderError(
                    f"Line {origin.line} imports {origin.module}, but a kernel module may import "
                    "only torch, triton, triton.language, libdevice and a few modules of the standard library."
                )
            return _short(full)
        if root in _FORGOTTEN:
            return _short(_FORGOTTEN[root] + dot + rest)
        if hasattr(builtins, root) or root in ("libdevice", "__name__"):
            return _short(path)
        raise RenderError(f"Line {line} uses `{root}`, which the completion does not define.")


def _may_import(origin: Imported, full: str) -> bool:
    allowed = origin.module in _ALLOWED or origin.path in _ALLOWED
    return allowed or origin.module.partition(".")[0] in STANDARD or _short(full).startswith("libdevice")


def _short(path: str) -> str:
    """Returns ``tl.load`` for ``triton.language.load``, and ``libdevice.exp`` for any path to it."""
    module, _, name = path.rpartition(".")
    if name == "libdevice":
        return name
    if module.endswith("libdevice"):
        return SAME.get(f"libdevice.{name}", f"libdevice.{name}")
    if path == "triton.language" or path.startswith("triton.language."):
        path = "tl" + path.removeprefix("triton.language")
    # `tl.math` was libdevice once, and `tl` has fewer functions than some believe.
    return f"libdevice.{name}" if path.startswith("tl.") and in_libdevice(path) else path
