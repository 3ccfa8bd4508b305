"""Reads the answers of models that were trained on Inductor's output: kernels, ``call`` and ``ModelNew``.

``ModelNew.forward`` shows what each argument of ``call`` is (``primals_2 = self.fc.weight``) and which of its
results are returned (``return output[0]``).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelllm_judge.core.domains import sized
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.core.syntax import call_name, constant_int, is_docstring
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor import torch_calls
from kernelllm_judge.render.inductor.kernel_source import parse
from kernelllm_judge.render.inductor.program import Assign, Binding, Program
from kernelllm_judge.render.inductor.wrapper import read_program
from kernelllm_judge.render.visible import is_own, reached, visible

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_FLOATS = frozenset({"float32", "bfloat16", "float16", "float64"})


def read_model_output(source: str, live: LiveTarget) -> list[tuple[Program, Binding, Domain]]:
    """Reads program and binding of a text for each domain of the target that it serves."""
    tree = parse(source)
    forward = _forward(tree)
    program = read_program(source)
    binding = _binding(program, forward, live)
    problems: list[str] = []
    found = []
    for case in live.cases:
        bound = replace(binding, specs=visible(case.domain, live.parts))
        if (domain := _domain(case, program, bound, problems)) is not None:
            found.append((program, replace(bound, specs=visible(domain, live.parts)), domain))
    if not found:
        raise RenderError(problems[0])
    return found


def _forward(tree: ast.Module) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return item
            raise RenderError(f"Line {node.lineno}: ModelNew has no forward.")
    raise RenderError("There is no class ModelNew; the text was probably cut off.")


def _binding(program: Program, forward: ast.FunctionDef, live: LiveTarget) -> Binding:
    own = [a.arg for a in forward.args.args[1:]]
    theirs = [n for n, p in live.signature.parameters.items() if not p.kind.name.startswith("VAR")]
    if len(own) > len(theirs):
        raise RenderError(
            f"Line {forward.lineno}: ModelNew.forward takes ({', '.join(own)}), the target's forward"
            f" ({', '.join(theirs)})."
        )
    values: dict[str, ast.expr] = {
        old: ast.Name(new, ast.Load()) for old, new in zip(own, theirs, strict=False)
    }
    results: list[str] = []
    arguments: dict[str, str] = {}
    output: Any = None
    for statement in forward.body:
        if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
            value = statement.value
            if isinstance(value, ast.Call) and call_name(value) == "call":
                results = [ast.unparse(target) for target in statement.targets]
                arguments = _arguments(value, values, program, live)
            else:
                value = values.get(value.id, value) if isinstance(value, ast.Name) else value
                values |= {ast.unparse(target): value for target in statement.targets}
        elif isinstance(statement, ast.Return) and statement.value is not None:
            output = _output(statement.value, results, len(program.returns))
            break  # what follows is never reached
        elif not is_docstring(statement):
            raise RenderError(
                f"Line {statement.lineno}: ModelNew.forward does more than call the kernels"
                f" ({ast.unparse(statement).splitlines()[0]})."
            )
    if not arguments or output is None:
        raise RenderError(f"Line {forward.lineno}: ModelNew.forward does not return what `call` computes.")
    return Binding(arguments, output, {}, {})


def _arguments(
    call: ast.Call, values: dict[str, ast.expr], program: Program, live: LiveTarget
) -> dict[str, str]:
    given = call.args[0].elts if call.args and isinstance(call.args[0], ast.List | ast.Tuple) else []
    if len(given) != len(program.arguments):
        raise RenderError(
            f"Line {call.lineno}: ModelNew gives `call` {len(given)} arguments; it takes"
            f" {len(program.arguments)}."
        )
    bound = {}
    for name, node in zip(program.arguments, given, strict=True):
        value = values.get(node.id) if isinstance(node, ast.Name) else node
        if value is None:
            raise RenderError(
                f"Line {call.lineno}: `{ast.unparse(node)}` is not defined in ModelNew.forward."
            )
        text = ast.unparse(value)
        if is_own(text):
            own = live.parts.name(value)
            if own is None or own not in live.cases[0].domain.attributes:
                raise RenderError(
                    f"The target has no attribute `{text.removeprefix('self.')}`, which the text reads."
                )
            text = reached(f"self.{own}", live.parts)
        bound[name] = text
    return bound


def _output(value: ast.expr, results: Sequence[str], count: int) -> Any:
    """Reads ``output[0]``, ``output[0], output[2]`` or ``output`` as an output structure."""
    if isinstance(value, ast.Tuple):
        return {"tuple": [_output(item, results, count) for item in value.elts]}
    if isinstance(value, ast.Subscript) and ast.unparse(value.value) in results:
        index = constant_int(value.slice)
        if index is not None:
            return {"tensor": index}
    if isinstance(value, ast.Name) and value.id in results:
        return {"tuple": [{"tensor": i} for i in range(count)]}
    raise RenderError(
        f"Line {value.lineno}: ModelNew.forward returns `{ast.unparse(value)}`, which is not understood."
    )


def _domain(case: Case, program: Program, binding: Binding, problems: list[str]) -> Domain | None:
    """Returns the part of a case's domain that the size asserts in the text allow, or None."""
    dims = dict(case.domain.dims)
    sizes: dict[str, int] = {}
    written_for = _float_dtypes(program)
    for argument, path in binding.arguments.items():
        spec = binding.specs.get(path)
        layout = program.layouts.get(argument)
        if not isinstance(spec, TensorSpec):
            continue
        if spec.dtype in _FLOATS and spec.dtype not in written_for:
            problems.append(
                f"The text was written for {', '.join(sorted(written_for))}; `{path}` is {spec.dtype}."
            )
            return None
        if layout is None:
            continue
        if not _fits(spec, layout[0], sizes, dims):
            problems.append(
                f"The text was written for `{path}` of shape ({', '.join(map(ast.unparse, layout[0]))}); the target's is"
                f" ({', '.join(map(str, spec.shape))})."
            )
            return None
    left = {name: bounds for name, bounds in dims.items() if name not in sizes}
    return Domain(
        sized(case.domain.inputs, sizes), case.domain.attributes, left, case.domain.training, case.domain.grad
    )


def _fits(
    spec: TensorSpec, shape: Sequence[ast.expr], sizes: dict[str, int], dims: dict[str, tuple[int, int]]
) -> bool:
    if len(spec.shape) != len(shape):
        return False
    for have, size in zip(spec.shape, shape, strict=True):
        expected = constant_int(size)
        if expected is None:
            return False
        if isinstance(have, int):
            if have != expected:
                return False
        else:
            low, high = dims.get(have, (expected, expected))
            if not low <= expected <= high or sizes.setdefault(have, expected) != expected:
                return False
    return True


def _float_dtypes(program: Program) -> set[str]:
    """Returns every floating dtype that the text allocates; float32, in which such texts are written, if there is none."""
    allocated = {
        torch_calls.allocation(step.value)[2].removeprefix("torch.")
        for step in program.steps
        if isinstance(step, Assign)
        and isinstance(step.value, ast.Call)
        and torch_calls.is_allocation(step.value)
    }
    return allocated & _FLOATS or {"float32"}
