"""Reads the kernels in TorchInductor's output code: functions, or strings with a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kernelllm_judge.core.syntax import (
    Substitute,
    bound_names,
    call_name,
    constant_int,
    is_jitted,
    read_names,
    rename,
    stored_names,
)
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.program import ROWS, KernelSource, Kind

_KINDS: Mapping[str, Kind] = {
    "pointwise": "pointwise",
    "reduction": "reduction",
    "persistent_reduction": "reduction",
    "template": "template",
}


def parse(source: str) -> ast.Module:
    """Parses Python code."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        last = len(source.rstrip("\n").splitlines())
        cut = (
            " (the text was probably cut off)"
            if error.lineno is not None and error.lineno >= last - 1
            else ""
        )
        raise RenderError(f"Line {error.lineno} is not Python: {error.msg}{cut}.") from None


def read_kernels(tree: ast.Module) -> Iterator[tuple[str, KernelSource]]:
    """Yields the kernels of a text by name."""
    constants = dict(_constants(tree))
    functions = [
        Substitute({name: value for name, value in constants.items() if name not in bound_names(node)}).apply(
            node
        )
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and is_jitted(node)
    ]
    helpers = tuple(f for f in functions if not f.name.startswith("triton_"))
    for function in functions:
        if function not in helpers:
            yield function.name, _kernel(function.name, function, helpers)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.targets[0])
            match call_name(node.value), node.value.args:
                case "async_compile.triton", [_, ast.Constant(text), *_]:
                    yield name, _from_string(name, parse(str(text)))
                case called, _ if called.startswith("async_compile."):
                    raise RenderError(f"`{name}` is not a Triton kernel ({called}).")


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yields the numbers that the module names: ``LOG2_E = 1.44``, ``LOG2_E: tl.constexpr = tl.constexpr(1.44)``."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if isinstance(value, ast.Call) and call_name(value).endswith("constexpr") and value.args:
                    value = value.args[0]
                number = value.operand if isinstance(value, ast.UnaryOp) else value
                if isinstance(number, ast.Constant) and isinstance(number.value, int | float):
                    yield name, value


def _from_string(name: str, tree: ast.Module) -> KernelSource:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)]
    main = next((f for f in functions if f.name == name), None)
    if main is None:
        raise RenderError(f"The source of `{name}` holds no kernel of that name.")
    return _kernel(name, main, tuple(f for f in functions if f is not main))


def _kernel(name: str, function: ast.FunctionDef, helpers: tuple[ast.FunctionDef, ...]) -> KernelSource:
    """Reads a kernel with the metadata of its heuristics decorator, or else of its body."""
    for decorator in function.decorator_list:
        if not (isinstance(decorator, ast.Call) and "triton_heuristics." in call_name(decorator)):
            continue
        heuristic = call_name(decorator).rpartition(".")[2]
        if heuristic not in _KINDS:
            raise RenderError(f"`{name}` is a kernel of kind `{heuristic}`, which is not supported.")
        options = {k.arg: k.value for k in decorator.keywords}
        meta = _entries(options.get("inductor_meta"))
        grid = meta.get("grid_type", "Grid1D")
        if _KINDS[heuristic] == "template" and grid == "FixedGrid":
            tensors = [a.arg for a in function.args.args if a.arg.startswith("arg_")]
            rename(function, {tensor: f"{tensor}_ptr" for tensor in tensors})
            return KernelSource(name, function, helpers, "template", chosen=_chosen(options))
        rows = meta.get(ROWS) if grid == "MixOrderReductionGrid" else 0
        rows = rows if type(rows) is int else 0
        if not rows and grid not in ("Grid1D", "Grid2D", "Grid3D", "Grid2DWithYZOverflow"):
            raise RenderError(f"`{name}` needs a launch grid of kind `{grid}`, which is not supported.")
        if sum(k.startswith("r") for k in _entries(options.get("size_hints"))) > 1:
            raise RenderError(f"`{name}` reduces over two blocked dimensions, which is not supported.")
        types = _types(options.get("triton_meta"))
        return KernelSource(name, function, helpers, _KINDS[heuristic], types, rows)
    names = read_names(function) | stored_names(function)
    kind: Kind = "reduction" if names & {"rindex", "r0_index"} else "pointwise"
    return KernelSource(name, function, helpers, kind)


def _chosen(options: Mapping[str | None, ast.expr]) -> Mapping[str, int]:
    """Returns the launch options of a template's kernel, whose blocks are constants in its body."""
    found = {name: constant_int(options[name]) for name in ("num_warps", "num_stages") if name in options}
    return {name: value for name, value in found.items() if value is not None}


def _types(meta: ast.expr | None) -> Mapping[str, str]:
    """Returns Triton's type of each parameter from ``triton_meta={"signature": {...}}``."""
    if isinstance(meta, ast.Dict):
        for key, value in zip(meta.keys, meta.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "signature":
                return {k: str(v) for k, v in _entries(value).items()}
    return {}


def _entries(node: ast.expr | None) -> Mapping[str, object]:
    """Returns the entries of a dict that have a constant for key and value; nothing for another expression."""
    if not isinstance(node, ast.Dict):
        return {}
    return {
        str(k.value): v.value
        for k, v in zip(node.keys, node.values, strict=True)
        if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)
    }
