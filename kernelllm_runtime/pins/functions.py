"""What a function holds, and what its code mentions."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
import textwrap
import types
from dataclasses import dataclass
from typing import Any

from kernelllm_runtime.pins.objects import MISSING

_ORIGINAL = "__kernelllm_original__"

_LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        "torch",
        "triton",
        "numpy",
        __name__.partition(".")[0],
        "kernelllm_judge",
        "pytest_kernelllm",
        "",
    }
)


def is_library(module: str, own: str) -> bool:
    """Whether a module's code is taken as it is: the standard library's, torch's, and other installed packages'.

    Args:
        own: a top-level package that is the user's, wherever it is installed.
    """
    top = module.partition(".")[0]
    return top in _LIBRARIES or (top != own and _installed(top))


def is_basic(module: str) -> bool:
    """Whether a module is one of the standard library, torch, Triton or NumPy."""
    return module.partition(".")[0] in _LIBRARIES


def _installed(top: str) -> bool:
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return "site-packages" in file or "dist-packages" in file


def function_of(value: Any) -> Any:
    """Returns the plain function behind a method, a property or an adopted ``forward``; other values as they are."""
    if isinstance(value, types.MethodType | staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property | functools.cached_property):
        value = value.fget if isinstance(value, property) else value.func
    if isinstance(value, types.FunctionType):
        value = getattr(value, "_torchdynamo_orig_callable", value)
    if isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    return getattr(value, _ORIGINAL, value) if isinstance(value, types.FunctionType) else value


def in_function(function: types.FunctionType, step: str) -> Any:
    """Returns what a function's own code finds under a name, see ``member``; ``MISSING`` if nothing."""
    if step == "(imports)":
        return imports(function)
    if step.startswith("("):
        return defaults(function).get(step[1:-1], MISSING)
    cell = cells(function).get(step)
    if cell is not None:
        return cell.cell_contents
    return function.__globals__.get(step, getattr(builtins, step, MISSING))


def cells(function: types.FunctionType) -> dict[str, Any]:
    """Returns the cells of a function's closure by name; cells that are still empty are left out."""
    found = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell for name, cell in found if _contents(cell) is not MISSING}


def defaults(function: types.FunctionType) -> dict[str, Any]:
    """Returns the defaults of a function's parameters by name."""
    code = function.__code__
    given = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    return {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})}


def imports(function: types.FunctionType) -> dict[str, Any]:
    """Returns what a function's code imports from modules outside the libraries while it runs, by full name."""
    package = function.__globals__.get("__package__") or ""
    found: dict[str, Any] = {}
    for level, name, taken in reads_of(function.__code__).imports:
        try:
            full = importlib.util.resolve_name("." * level + name, package) if level else name
        except ImportError:
            continue
        if is_library(full, ""):
            continue
        module = sys.modules.get(full)
        names = taken or sorted(reads_of(function.__code__).names & vars(module).keys() if module else ())
        found |= {f"{full}.{each}": getattr(module, each, MISSING) for each in names}
    return {name: value for name, value in found.items() if not isinstance(value, types.ModuleType)}


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


@dataclass(frozen=True)
class Reads:
    """What a function's code mentions, with the code nested in it."""

    names: frozenset[str]
    """Every attribute, method and global."""
    strings: frozenset[str]
    """Words of string constants that may be names."""
    globals: tuple[str, ...]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    """Level, module and names of every import."""


@functools.lru_cache(maxsize=4096)
def reads_of(code: types.CodeType) -> Reads:
    """Returns what a code object mentions."""
    names, strings, found = set(code.co_names), set[str](), dict[str, None]()
    imported: list[tuple[int, str, tuple[str, ...]]] = []
    instructions = list(dis.get_instructions(code))
    for index, each in enumerate(instructions):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found[each.argval] = None
        elif each.opname == "IMPORT_NAME":
            level, taken = instructions[index - 2].argval, instructions[index - 1].argval
            imported.append((level, each.argval, tuple(taken or ())))
        elif each.opname == "MATCH_CLASS":  # which may read any attribute
            names.add("__dict__")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = reads_of(constant)
            names |= inner.names
            strings |= inner.strings
            found |= dict.fromkeys(inner.globals)
            imported += inner.imports
        for item in constant if isinstance(constant, tuple | frozenset) else (constant,):
            if isinstance(item, str):
                strings |= {part for part in re.split(r"\W+", item) if part.isidentifier()}
    return Reads(frozenset(names), frozenset(strings), tuple(found), tuple(imported))


@functools.lru_cache(maxsize=4096)
def digest_of(code: types.CodeType) -> str:
    """Returns a digest of a function's code: of its source where that is certain, else of what Python made from it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        tree = ast.Module([], [])
    kinds = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    if found and (kinds is ast.FunctionDef or len(found) == 1):
        return hashlib.sha256(ast.unparse(found[0]).encode()).hexdigest()[:16]
    return hashlib.sha256(code.co_code + repr(_constants(code)).encode()).hexdigest()[:16]


def _constants(code: types.CodeType) -> list[Any]:
    nested = [
        (each.co_code.hex(), _constants(each))
        if isinstance(each, types.CodeType)
        else (type(each).__name__, each)
        for each in code.co_consts
    ]
    return [*nested, code.co_names, code.co_varnames]
