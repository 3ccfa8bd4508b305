"""Writes a ``ModelNew`` for answers that are a function: ``kernel_function(x, weight, bias, stride=1)``.

Its parameters are bound by name to the call's inputs, and to the weights and settings of the target.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.syntax import (
    defaults,
    is_jitted,
    is_literal,
    literal,
    parameters,
)
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.matches import MOST, likeness

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_NAME = "kernel_function"
_BEAM = 16


@dataclass(frozen=True)
class _Option:
    """What a parameter may be bound to."""

    text: str
    """An expression over the target's parameters and ``self``; empty to leave the default."""
    score: float


def entry(tree: ast.Module) -> ast.FunctionDef | None:
    """Returns the function that is the answer, if there is no class ``ModelNew``."""
    if any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        return None
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _NAME]
    return named[-1] if named and not is_jitted(named[-1]) else None


def model_texts(function: ast.FunctionDef, live: LiveTarget) -> list[str]:
    """Returns classes ``ModelNew`` whose ``forward`` calls a function, the likeliest binding first.

    Args:
        function: its entry.
        live: the target.

    Raises:
        RenderError: a parameter cannot be bound, or an input goes nowhere.
    """
    if function.args.vararg or function.args.kwarg:
        raise RenderError(
            f"Line {function.lineno}: {function.name} takes *args or **kwargs; parameters are bound by name, so each needs one."
        )
    passed = nested(live.cases[0].domain.inputs)
    inputs = [name for name in live.signature.parameters if name in passed]
    states: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    names = [p.arg for p in parameters(function.args)]
    for position, name in enumerate(names):
        optional = [_Option("", 0)] if name in defaults(function.args) else []
        options = [*_options(name, position, function, inputs, live), *optional]
        grown = [
            (score + option.score, (*bound, option.text))
            for score, bound in states
            for option in options
            if not option.text or option.text not in bound
        ]
        if not grown:
            raise RenderError(
                f"Line {function.lineno}: the parameter `{name}` of {function.name} is neither an input of the "
                "target's forward nor one of its weights or settings."
            )
        states = sorted(grown, key=lambda state: -state[0])[:_BEAM]
    tensors = [n for n in inputs if isinstance(passed[n], TensorSpec | tuple)]
    whole = [bound for _, bound in states if set(tensors) <= set(bound)]
    if not whole:
        raise RenderError(
            f"Line {function.lineno}: {function.name} takes ({', '.join(names)}); the target's forward takes "
            f"({', '.join(inputs)})."
        )
    return [_model(function, dict(zip(names, bound, strict=True)), live) for bound in whole[:MOST]]


def _options(
    name: str, position: int, function: ast.FunctionDef, inputs: list[str], live: LiveTarget
) -> Iterator[_Option]:
    domain = live.cases[0].domain
    named = name in inputs
    default = defaults(function.args).get(name, ast.Constant(None))
    empty = isinstance(default, ast.Constant) and default.value is None
    for index, other in enumerate(inputs):
        if other == name or (not named and empty):
            yield _Option(other, 100 if other == name else 30 - 10 * abs(index - position))
    if named:
        return
    leaves: set[str] = set()
    for path, spec in domain.attributes.items():
        whole, bracket, _ = path.partition("[")
        leaf = whole.rpartition(".")[2]
        text = live.parts.expression(whole)
        if text is None or leaf == "__class__":
            continue
        if isinstance(spec, TensorSpec):
            if (like := likeness(name, path)) >= 10:
                yield _Option(text, 30 + like)
        elif leaf == name and text not in leaves:
            leaves.add(text)
            single = _Option(f"{text}[0]", 61 if isinstance(default, ast.Constant) and not empty else 59)
            yield from (_Option(text, 60), single) if bracket else (_Option(text, 60),)
    given = _constructor_arguments(live)
    if not leaves and name in given:
        yield _Option(ast.unparse(literal(given[name])), 50)


def _constructor_arguments(live: LiveTarget) -> Mapping[str, object]:
    given = live.init_arguments(live.cases[0])
    try:
        bound = inspect.signature(live.cls).bind(*given.args, **given.kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in bound.arguments.items()}
    return {name: value for name, value in plain.items() if is_literal(value)}


def _model(function: ast.FunctionDef, bound: Mapping[str, str], live: LiveTarget) -> str:
    passed = ", ".join(f"{name}={text}" for name, text in bound.items() if text)
    takes = ", ".join(["self", *live.signature.parameters])
    return f"class ModelNew:\n    def forward({takes}):\n        return {function.name}({passed})\n"
