"""Gives ``forward`` the parameters of the target's ``forward``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection

from kernelllm_judge.core.syntax import (
    bound_names,
    defaults,
    expression,
    is_literal,
    literal,
    parameters,
    read_names,
    rename,
)
from kernelllm_judge.render.errors import RenderError
from kernelllm_runtime.leaves import parameter_of

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def with_target_parameters(
    forward: ast.FunctionDef, signature: inspect.Signature, passed: Collection[str]
) -> ast.FunctionDef:
    """Gives ``forward`` the target's parameters, matched by position.

    Args:
        forward: ``ModelNew.forward`` with ``self`` first; changed in place.
        signature: the signature of the target's ``forward``, without ``self``.
        passed: what some case passes: parameters, and the leaves of tuples.
    """
    theirs = [p.arg for p in parameters(forward.args)][1:]
    ours = [name for name, p in signature.parameters.items() if p.kind not in _VARIADIC]
    own_defaults = defaults(forward.args)
    required = len(theirs) - len(own_defaults)
    left_out = sorted(set(ours[len(theirs) :]) & {parameter_of(leaf) for leaf in passed})
    if forward.args.vararg or forward.args.kwarg:
        raise RenderError(
            f"Line {forward.lineno}: ModelNew.forward takes *args or **kwargs; it must name its inputs."
        )
    if required > len(ours) or left_out:
        raise RenderError(
            f"Line {forward.lineno}: ModelNew.forward takes ({', '.join(theirs)}), "
            f"the target's forward ({', '.join(ours)})."
        )
    extra = theirs[len(ours) :]
    renamed = {old: new for old, new in zip(theirs, ours, strict=False) if old != new}
    free = not (set(renamed.values()) & (bound_names(forward) | read_names(forward)))
    if renamed and free:
        rename(forward, renamed)
        renamed = {}
    targets = [*renamed, *extra]
    values = [*(expression(new) for new in renamed.values()), *(own_defaults[name] for name in extra)]
    if targets:
        assignment = ast.parse(f"{', '.join(targets)} = {', '.join(ast.unparse(value) for value in values)}")
        _after_docstring(forward, assignment.body[0])
    forward.args = _arguments(signature)
    forward.decorator_list = []
    return ast.fix_missing_locations(forward)


def _arguments(signature: inspect.Signature) -> ast.arguments:
    kind = inspect.Parameter
    found = ast.arguments(posonlyargs=[], args=[ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[])
    for name, parameter in signature.parameters.items():
        if parameter.kind is kind.VAR_POSITIONAL:
            found.vararg = ast.arg(name)
        elif parameter.kind is kind.VAR_KEYWORD:
            found.kwarg = ast.arg(name)
        elif parameter.kind is kind.KEYWORD_ONLY:
            found.kwonlyargs.append(ast.arg(name))
            found.kw_defaults.append(_default(parameter))
        else:
            found.args.append(ast.arg(name))
            if (default := _default(parameter)) is not None:
                found.defaults.append(default)
    return found


def _default(parameter: inspect.Parameter) -> ast.expr | None:
    if parameter.default is parameter.empty:
        return None
    if not is_literal(parameter.default):
        raise RenderError(
            f"The target's parameter `{parameter.name}` has a default that is not a plain value, "
            "which a kernel module cannot contain."
        )
    return literal(parameter.default)


def _after_docstring(function: ast.FunctionDef, statement: ast.stmt) -> None:
    function.body.insert(0 if ast.get_docstring(function) is None else 1, statement)
