"""Leaves out kernels that only cast sums to another dtype: the sums are stored as that."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from kernelllm_judge.core.syntax import call_name, read_names
from kernelllm_judge.render.inductor.program import (
    Assign,
    KernelSource,
    Launch,
    Program,
    names_read,
)
from kernelllm_judge.render.inductor.torch_calls import same_size
from kernelllm_judge.render.inductor.wrapper import runtime_parameters

_WHOLE = (
    "xoffset = tl.program_id(0) * XBLOCK",
    "xindex = xoffset + tl.arange(0, XBLOCK)[:]",
    "xmask = xindex < xnumel",
    "xmask = tl.full([XBLOCK], True, tl.int1)[:]",
    "x0 = xindex",
)
"""What Inductor's kernel over all elements of a tensor computes before it loads one."""


def without_casts(program: Program, sums: Collection[str]) -> Program:
    """Returns a program in which sums that are only cast are stored in the other dtype.

    Args:
        program: the program.
        sums: its kernels that take parts, where to store their sums, and how many of these there are.
    """
    steps = list(program.steps)
    made = {ast.unparse(s.arguments[1]): s for s in steps if isinstance(s, Launch) and s.kernel in sums}
    returned = {name for value in program.returns for name in read_names(value)}
    for cast in [s for s in steps if isinstance(s, Launch) and s.kernel not in sums]:
        into = _casts(program.kernels[cast.kernel], cast)
        elsewhere = returned.union(
            *(names_read(s) for s in steps if s is not cast and s not in made.values())
        )
        if not into or not into.keys() <= made.keys() or into.keys() & elsewhere:
            continue
        if not all(same_size(count, made[name].arguments[2]) for name, (_, count) in into.items()):
            continue
        at = steps.index(cast)
        for name, (result, _) in into.items():
            parts, _, *sizes = made[name].arguments
            steps.insert(at, replace(made[name], arguments=(parts, result, *sizes)))
        gone = [cast, *(made[name] for name in into)]
        steps = [s for s in steps if s not in gone and not (isinstance(s, Assign) and s.name in into)]
    return replace(program, steps=tuple(steps))


def _casts(kernel: KernelSource, launch: Launch) -> dict[str, tuple[ast.expr, ast.expr]]:
    """Returns where a kernel stores each buffer in another dtype, and how many elements, if it does nothing else."""
    parameters = [a.arg for a in runtime_parameters(kernel.function)]
    given = dict(zip(parameters, launch.arguments, strict=False))
    values: dict[str, str] = {}
    """The pointer from which a value was loaded, by its name."""
    found: dict[str, tuple[ast.expr, ast.expr]] = {}
    for node in kernel.function.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if name.startswith("tmp"):
                inner = _uncast(value)
                pointer = values.get(inner.id) if isinstance(inner, ast.Name) else _pointer(inner, "tl.load")
                if pointer is None:
                    return {}
                values[name] = pointer
            case ast.Expr(value=ast.Call(args=[_, ast.Name(stored), *_]) as call) if stored in values:
                pointer, into = values[stored], _pointer(call, "tl.store")
                if into is None or not {pointer, into, "xnumel"} <= given.keys():
                    return {}
                source = ast.unparse(given[pointer])
                if source in found:  # stored twice
                    return {}
                found[source] = given[into], given["xnumel"]
            case ast.Assign(targets=[ast.Name("xnumel")], value=count):
                if not ("xnumel" in given and same_size(count, given["xnumel"])):
                    return {}
            case ast.Assign() if ast.unparse(node) in _WHOLE:
                pass
            case _:
                return {}
    return found


def _uncast(value: ast.expr) -> ast.expr:
    """Returns what is cast to float32, in which sums are kept anyway; another expression as it is."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[kind]) if (
            ast.unparse(kind) == "tl.float32"
        ):
            return inner
    return value


def _pointer(value: ast.expr, call: str) -> str | None:
    """Returns the pointer of a load or store of every element; None for anything else."""
    match value:
        case ast.Call(args=[ast.BinOp(left=ast.Name(pointer), op=ast.Add(), right=ast.Name("x0")), *rest]):
            mask = ast.unparse(rest[-1]) if rest else "None"
            return pointer if call_name(value) == call and mask in ("None", "xmask") else None
    return None
