"""Turns the names and views in a compiler's wrapper into expressions over ``self``, inputs and variables."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from kernelllm_judge.core.syntax import Substitute, call_name, constant_int, expression
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.torch_calls import contiguous_strides, elements, is_contiguous, same_size

Shape = Sequence[ast.expr]


class Buffers:
    """The expression, shape and strides of every tensor in a program."""

    def __init__(self) -> None:
        """Starts without tensors."""
        self.written: dict[str, ast.expr] = {}
        """The expression in the kernel module, by the name in the program."""
        self.layouts: dict[str, tuple[Shape, Shape]] = {}
        self.inputs: set[str] = set()

    def add(
        self, name: str, written: str, layout: tuple[Shape, Shape] | None = None, *, given: bool = False
    ) -> None:
        """Adds a tensor or a size.

        Args:
            name: its name in the program.
            written: its expression in the kernel module.
            layout: its shape and strides, in the program's names.
            given: whether it comes from outside and so may start anywhere in its storage.
        """
        self.written[name] = expression(written)
        if layout is not None:
            self.layouts[name] = layout
        if given:
            self.inputs.add(name)

    def rename(self, node: ast.expr) -> ast.expr:
        """Writes a size expression in the names of the kernel module."""
        return Substitute(self.written).apply(node)

    def tensor(self, node: ast.expr) -> ast.expr:
        """Writes a tensor expression in the names of the kernel module, with torch's methods for views."""
        result: ast.expr = _Views(self).visit(copy.deepcopy(node))
        return result

    def pointer(self, node: ast.expr) -> ast.expr:
        """Writes a tensor as a kernel's argument, of which only the start of the data matters."""
        while (
            isinstance(node, ast.Call)
            and call_name(node) == "reinterpret_tensor"
            and _offset(node) == 0
            and node.args
        ):
            node = node.args[0]
        return self.tensor(node)

    def view(self, base: ast.expr, shape: Shape, strides: Shape, offset: ast.expr) -> ast.expr:
        """Writes a view of a tensor with the simplest method that its layout allows."""
        name = base.id if isinstance(base, ast.Name) else None
        source = self.tensor(base)
        known = self.layouts.get(name) if name is not None else None
        at_start = constant_int(offset) == 0
        if at_start and known is not None:
            old_shape, old_strides = known
            if _equal(shape, old_shape) and _equal(strides, old_strides):
                return source
            whole = same_size(elements(shape), elements(old_shape))  # and not the start of a larger tensor
            if whole and is_contiguous(old_shape, old_strides) and is_contiguous(shape, strides):
                if _equal(shape, old_shape):
                    return source
                return _method(source, "view", [self.rename(n) for n in shape])
            if len(old_shape) == 2 and _equal(shape, old_shape[::-1]) and _equal(strides, old_strides[::-1]):
                return _method(source, "t", [])
        arguments: list[ast.expr] = [
            ast.Tuple([self.rename(n) for n in part], ast.Load()) for part in (shape, strides)
        ]
        if not at_start:
            start = self.rename(offset)
            own = name is not None and name not in self.inputs
            arguments.append(
                start if own else ast.BinOp(_method(source, "storage_offset", []), ast.Add(), start)
            )
        return _method(source, "as_strided", arguments)


class _Views(ast.NodeTransformer):
    def __init__(self, buffers: Buffers) -> None:
        self.buffers = buffers

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self.buffers.written.get(node.id, node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if call_name(node) != "reinterpret_tensor":
            return self.generic_visit(node)
        match node.args:
            case [base, ast.Tuple(shape), ast.Tuple(strides), *offsets] if len(shape) == len(strides):
                offset = offsets[0] if offsets else ast.Constant(0)
            case _:
                raise RenderError(
                    f"Line {node.lineno}: `{ast.unparse(node)}` is not reinterpret_tensor(tensor, shape, strides, offset)."
                )
        inner_start = 0
        while isinstance(base, ast.Call) and call_name(base) == "reinterpret_tensor" and base.args:
            inner_start += _offset(base)
            base = base.args[0]
        if inner_start:
            offset = ast.BinOp(offset, ast.Add(), ast.Constant(inner_start))
        return self.buffers.view(base, shape, strides, offset)


def _offset(call: ast.Call) -> int:
    """Returns the offset of a view; -1 if it depends on sizes."""
    value = constant_int(call.args[3]) if len(call.args) > 3 else 0
    return -1 if value is None else value


def _equal(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_size(x, y) for x, y in zip(a, b, strict=True))


def _method(value: ast.expr, name: str, arguments: Sequence[ast.expr]) -> ast.expr:
    return ast.Call(ast.Attribute(value, name, ast.Load()), list(arguments), [])


def domain_layout(shape: Sequence[int | str], symbols: Mapping[str, str]) -> tuple[Shape, Shape]:
    """Returns the layout of a tensor in a domain; ``symbols`` has the program's name of each named dimension."""
    sizes = [expression(str(symbols.get(n, n) if isinstance(n, str) else n)) for n in shape]
    return sizes, contiguous_strides(sizes)
