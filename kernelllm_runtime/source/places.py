"""Tells whether code reads where it stands: the name or file of its module, or its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm_runtime.source.names import is_program
from kernelllm_runtime.source.syntax import words

OWN = words("__name__ __file__ __path__ __package__ __spec__ __loader__ __cached__ __module__ __qualname__")
"""Names by which a module's code reads where that module is."""

_OF_ANYTHING = OWN - {"__name__", "__qualname__"} | {"co_filename", "co_qualname"}
"""Attributes, and texts that may name one, by which code reads where any object comes from."""

_LINES = words(
    "_getframe _current_frames f_back f_code f_globals f_lineno f_lasti tb_frame tb_lineno co_firstlineno co_lines "
    "co_positions __firstlineno__ __traceback__"
)
"""Attributes by which code reads where a call stands."""

_READS_SOURCE = ("inspect", "traceback", "linecache", "tokenize")
_READS_NONE = words(
    "signature Signature Parameter BoundArguments getfullargspec unwrap cleandoc getdoc getattr_static getmro"
)


def own_places(node: ast.AST) -> set[str]:
    """Returns the names by which code reads where its module is; that of a logger changes no result."""
    return {n.id for n in _read(node) if isinstance(n, ast.Name) and n.id in OWN}


def reads_any_place(node: ast.AST) -> bool:
    """Whether code may read where the modules of other objects are."""
    return any(mentioned in _OF_ANYTHING for mentioned in _attributes(node))


def reads_lines(node: ast.AST) -> bool:
    """Whether code may read the lines or the text of source files."""
    return any(mentioned in _LINES for mentioned in _attributes(node))


def gives_source(qualified: str) -> bool:
    """Whether something of the standard library, by its qualified name, may read the lines or the text of source files."""
    module, _, name = qualified.partition(".")
    return module in _READS_SOURCE and name not in _READS_NONE and not name.startswith("is")


def _attributes(node: ast.AST) -> Iterator[str]:
    for each in _read(node):
        if isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.alias):
            yield each.name
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def _read(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all of a syntax tree but what only names a logger, or asks whether the module is the program."""
    yield node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger":
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Module) and is_program(child)):
            yield from _read(child)
