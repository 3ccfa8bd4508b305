"""Makes kernels use 64-bit offsets for tensors with 2**31 elements or more."""

from __future__ import annotations

import ast
import copy
import math

from pytest_kernelllm.core.records import Domain, TensorSpec
from pytest_kernelllm.core.syntax import call_name, expression
from pytest_kernelllm.generate.render.inductor.program import Assign, Binding, Program
from pytest_kernelllm.generate.render.inductor.torch_calls import allocation, evaluate, is_allocation, size_of

_LIMIT = 2**31


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


class _WithInt64(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return node  # the compiler did this already
        self.generic_visit(node)
        if call_name(node) == "tl.program_id":
            return ast.Call(ast.Attribute(node, "to", ast.Load()), [expression("tl.int64")], [])
        return node
