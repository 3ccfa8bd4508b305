"""Makes kernels use 64-bit offsets for tensors with 2**31 elements or more, and 32-bit ones for all others.

Inductor counts in 64 bits also where only the pairs of a row and a column are so many, as in pooling, and dividing 64-bit
numbers takes a GPU several times as long.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Mapping

from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.core.syntax import call_name, expression
from kernelllm_judge.render.inductor.program import Assign, Binding, Program
from kernelllm_judge.render.inductor.torch_calls import allocation, evaluate, is_allocation, size_of

_LIMIT = 2**31
_LARGEST_BLOCK = 1 << 13


def needs_int64(program: Program, binding: Binding, domain: Domain) -> bool:
    """Whether a tensor of a program has 2**31 elements or more at the largest sizes of its domain."""
    specs = binding.specs
    sizes: dict[str, int] = {}
    for step in program.steps:
        if isinstance(step, Assign) and (read := size_of(step.value)) is not None:
            spec = specs.get(binding.arguments.get(read[0], ""))
            if isinstance(spec, TensorSpec):
                sizes[step.name] = _most(spec.shape[read[1]], domain)
    counts = [
        math.prod(_most(n, domain) for n in s.shape) for s in specs.values() if isinstance(s, TensorSpec)
    ]
    made = (step.value for step in program.steps if isinstance(step, Assign))
    counts += [
        math.prod(evaluate(n, sizes) or 1 for n in allocation(call)[0])
        for call in made
        if isinstance(call, ast.Call) and is_allocation(call)
    ]
    return max(counts, default=0) >= _LIMIT


def _most(size: int | str, domain: Domain) -> int:
    return size if isinstance(size, int) else domain.dims[size][1]


def with_int64_offsets(function: ast.FunctionDef) -> ast.FunctionDef:
    """Copies a kernel with 64-bit program ids, so that all offsets have 64 bits."""
    result: ast.FunctionDef = _WithInt64().visit(copy.deepcopy(function))
    return ast.fix_missing_locations(result)


def with_int32_offsets(function: ast.FunctionDef, sizes: Mapping[str, int]) -> ast.FunctionDef:
    """Copies a kernel, all of whose tensors have fewer than 2**31 elements, with 32-bit indices where they suffice.

    Args:
        function: the kernel.
        sizes: the numbers of elements that it fixes in its body. Where another one comes with the launch, nothing changes.
    """
    given = {a.arg for a in function.args.args if a.arg.endswith("numel")} - sizes.keys()
    if given or any(size > _LIMIT - _LARGEST_BLOCK for size in sizes.values()):
        return function
    result: ast.FunctionDef = _WithInt32().visit(copy.deepcopy(function))
    return ast.fix_missing_locations(result)


class _WithInt32(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Attribute(value=index, attr="to"), args=[kind]) if ast.unparse(
                kind
            ) == "tl.int64" and _is_index(index):
                return index
        return self.generic_visit(node)


def _is_index(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Call) and call_name(node) in ("tl.program_id", "tl.arange")


class _WithInt64(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return node  # the compiler did this already
        self.generic_visit(node)
        if call_name(node) == "tl.program_id":
            return ast.Call(ast.Attribute(node, "to", ast.Load()), [expression("tl.int64")], [])
        return node
