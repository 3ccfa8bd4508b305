"""Reads TorchInductor's output code: the kernels, and the ``call`` that allocates buffers and launches them.

There are two forms: what torch writes today (kernels as strings, ``kernel.run(..., stream=)``), and the
cleaned-up code of torch 2.5 on which models were trained (``kernel[grid(n)](..., XBLOCK=128)``).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from kernelllm_judge.core.syntax import Substitute, call_name, constant_int, expression
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.kernel_source import parse, read_kernels
from kernelllm_judge.render.inductor.program import Assign, Do, KernelSource, Launch, Layout, Program, Step
from kernelllm_judge.render.inductor.torch_calls import size_of

_IGNORED_CALLS = (
    "args.clear",
    "torch.cuda.set_device",
    "get_raw_stream",
    "assert_alignment",
    "torch._C._set_device",
)


def read_program(source: str) -> Program:
    """Reads the kernels and steps of one text."""
    tree = parse(source)
    kernels = dict(read_kernels(tree))
    call = _call(tree)
    return _Reader(kernels).read(call)


def _call(tree: ast.Module) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call" and node.args.args[-1:]:
            return node
    raise RenderError("There is no `call` function that launches the kernels.")


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
            if self.returns is not None:
                return  # what follows is never reached
            if isinstance(statement, ast.With):
                self._block(statement.body)
            elif isinstance(statement, ast.Assign):
                self._assign(statement.targets[0], statement.value)
                for target in statement.targets[1:]:  # a = b = value
                    self._assign(target, expression(ast.unparse(statement.targets[0])))
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._effect(statement.value)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                value = statement.value
                items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                self.returns = tuple(self._resolve(item) for item in items)
            elif not isinstance(statement, ast.Delete | ast.Pass | ast.Expr):  # the last has no effect
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
                self.layouts.setdefault(name, (shape, strides))

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
