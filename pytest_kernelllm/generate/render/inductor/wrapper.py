"""Reads TorchInductor's output code: the kernels, and the ``call`` that allocates buffers and launches them.

There are two forms: what torch writes today (kernels as strings, ``kernel.run(..., stream=)``), and the
cleaned-up code of torch 2.5 on which models were trained (``kernel[grid(n)](..., XBLOCK=128)``).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from pytest_kernelllm.core.syntax import (
    Substitute,
    call_name,
    constant_int,
    is_jitted,
    read_names,
    rename,
    stored_names,
)
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.inductor.program import (
    Assign,
    Do,
    KernelSource,
    Kind,
    Launch,
    Layout,
    Program,
    Step,
)
from pytest_kernelllm.generate.render.inductor.torch_calls import size_of

_IGNORED_CALLS = (
    "args.clear",
    "torch.cuda.set_device",
    "get_raw_stream",
    "assert_alignment",
    "torch._C._set_device",
)
_KINDS: Mapping[str, Kind] = {
    "pointwise": "pointwise",
    "reduction": "reduction",
    "persistent_reduction": "persistent",
    "template": "template",
}


def read_program(source: str) -> Program:
    """Reads the kernels and steps of one text.

    Raises:
        RenderError: it is not Python, has no ``call``, or contains an unknown statement or kind of kernel.
    """
    tree = parse(source)
    kernels = dict(_kernels(tree))
    call = _call(tree)
    return _Reader(kernels).read(call)


def parse(source: str) -> ast.Module:
    """Parses Python code.

    Raises:
        RenderError: it is not Python; the message names the line.
    """
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


def _call(tree: ast.Module) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call" and node.args.args[-1:]:
            return node
    raise RenderError("There is no `call` function that launches the kernels.")


# --------------------------------------------------------------------------- kernels


def _kernels(tree: ast.Module) -> Iterator[tuple[str, KernelSource]]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)]
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
        grid = _entries(options.get("inductor_meta")).get("grid_type", "Grid1D")
        if _KINDS[heuristic] == "template" and grid == "FixedGrid":
            tensors = [a.arg for a in function.args.args if a.arg.startswith("arg_")]
            rename(function, {tensor: f"{tensor}_ptr" for tensor in tensors})
            return KernelSource(name, function, helpers, "template", chosen=_chosen(options))
        if grid not in ("Grid1D", "Grid2D", "Grid3D", "Grid2DWithYZOverflow"):
            raise RenderError(f"`{name}` needs a launch grid of kind `{grid}`, which is not supported.")
        hints = _entries(options.get("size_hints"))
        sizes = {k.rstrip("_")[:1]: v for k, v in hints.items() if isinstance(v, int)}
        if len([k for k in hints if k.startswith("r")]) > 1:
            raise RenderError(f"`{name}` reduces over two blocked dimensions, which is not supported.")
        hint = ast.unparse(options["reduction_hint"]) if "reduction_hint" in options else "INNER"
        inner = hint.endswith(("INNER", "DEFAULT"))
        return KernelSource(
            name, function, helpers, _KINDS[heuristic], sizes, inner, _types(options.get("triton_meta"))
        )
    names = read_names(function) | stored_names(function)
    loops = any(isinstance(node, ast.For) for node in ast.walk(function))
    kind: Kind = "pointwise" if not names & {"rindex", "r0_index"} else "reduction" if loops else "persistent"
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


# --------------------------------------------------------------------------- call


class _Reader:
    """Reads ``call`` in one pass and replaces names that only stand for another expression."""

    def __init__(self, kernels: Mapping[str, KernelSource]) -> None:
        self.kernels = kernels
        self.arguments: tuple[str, ...] = ()
        self.known: dict[str, ast.expr] = {}
        self.steps: list[Step] = []
        self.layouts: dict[str, Layout] = {}
        self.returns: tuple[ast.expr, ...] | None = None

    def read(self, call: ast.FunctionDef) -> Program:
        self._block(call.body)
        if self.returns is None:
            raise RenderError("`call` returns nothing.")
        return Program(self.kernels, self.arguments, tuple(self.steps), self.returns, self.layouts)

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.With):
                self._block(statement.body)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._effect(statement.value)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                value = statement.value
                items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                self.returns = tuple(self._resolve(item) for item in items)
            elif not isinstance(statement, ast.Delete | ast.Pass):
                raise RenderError(
                    f"Line {statement.lineno} of `call` is not understood:"
                    f" {ast.unparse(statement).splitlines()[0]}"
                )

    def _resolve(self, node: ast.expr) -> ast.expr:
        return Substitute(self.known).apply(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Name) and value.id == "args":
            elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            self.arguments = tuple(ast.unparse(e) for e in elements)
            return
        if not isinstance(target, ast.Name):
            raise RenderError(f"Line {target.lineno} of `call` assigns to `{ast.unparse(target)}`.")
        name = target.id
        value = self._resolve(value)
        if isinstance(value, ast.Call) and call_name(value) == "get_raw_stream":
            return
        if isinstance(value, ast.Call) and call_name(value) == "copy_if_misaligned":
            return  # Triton asks for the alignment of every pointer
        if isinstance(value, ast.Call) and call_name(value).endswith(".size"):
            assert isinstance(value.func, ast.Attribute)
            value = ast.Attribute(value.func.value, "shape", ast.Load())
        if size_of(value) or (isinstance(value, ast.Call) and call_name(value) != "reinterpret_tensor"):
            self.steps.append(Assign(name, value))
            self.known.pop(name, None)
        else:  # an alias, a view or a size computed from others
            self.known[name] = value

    def _effect(self, call: ast.Call) -> None:
        name = call_name(call)
        if name in _IGNORED_CALLS:
            return
        if name == "assert_size_stride":
            self._layout(call)
        elif name.endswith(".run") and name.removesuffix(".run") in self.kernels:
            self._run(self.kernels[name.removesuffix(".run")], call)
        elif isinstance(call.func, ast.Subscript) and ast.unparse(call.func.value) in self.kernels:
            self._grid_launch(self.kernels[ast.unparse(call.func.value)], call)
        elif isinstance(call.func, ast.Subscript):
            raise RenderError(
                f"Line {call.lineno} launches `{ast.unparse(call.func.value)}`, which is not defined."
            )
        else:
            value = self._resolve(call)
            self.steps.append(Do(value))

    def _layout(self, call: ast.Call) -> None:
        match [self._resolve(a) for a in call.args[:3]]:
            case [ast.Name(name), ast.Tuple(shape), ast.Tuple(strides)]:
                layout = Layout(tuple(map(ast.unparse, shape)), tuple(map(ast.unparse, strides)))
                self.layouts.setdefault(name, layout)

    def _run(self, kernel: KernelSource, call: ast.Call) -> None:
        arguments, grid = tuple(self._resolve(a) for a in call.args), None
        if kernel.kind == "template":
            arguments, grid = arguments[:-3], arguments[-3:]
        self._check_count(kernel, arguments, call)
        self.steps.append(Launch(kernel.name, arguments, grid=grid))

    def _grid_launch(self, kernel: KernelSource, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Subscript)
        grid = call.func.slice
        if isinstance(grid, ast.Call) and call_name(grid) == "grid" and 1 <= len(grid.args) <= 3:
            numels = tuple(self._resolve(a) for a in reversed(grid.args))
        else:
            raise RenderError(f"Line {call.lineno}: the launch grid `{ast.unparse(grid)}` is not understood.")
        options = {k.arg: constant_int(k.value) for k in call.keywords if k.arg}
        blocks = {k: v for k, v in options.items() if k.endswith("BLOCK") and v is not None}
        arguments = tuple(self._resolve(a) for a in call.args)
        self._check_count(kernel, arguments, call)
        self.steps.append(Launch(kernel.name, arguments, numels, blocks, options.get("num_warps") or 4))

    def _check_count(self, kernel: KernelSource, arguments: Sequence[ast.expr], call: ast.Call) -> None:
        expected = [a.arg for a in runtime_parameters(kernel.function)]
        if len(expected) != len(arguments):
            raise RenderError(
                f"Line {call.lineno} gives `{kernel.name}` {len(arguments)} arguments; it takes {len(expected)}"
                f" ({', '.join(expected)})."
            )


def runtime_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """Parameters that are not ``tl.constexpr``."""
    return [
        copy.copy(a)
        for a in function.args.args
        if a.annotation is None or "constexpr" not in ast.unparse(a.annotation)
    ]
