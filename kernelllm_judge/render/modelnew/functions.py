"""Writes a ``ModelNew`` for answers that are a function: ``kernel_function(x, weight, bias, stride=1)``.

Its parameters are bound by name to the call's inputs, and to the weights and settings of the target.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.syntax import defaults, is_jitted, is_literal, literal, parameters
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.matches import likeness, words_of

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_NAME = "kernel_function"


def entry(tree: ast.Module) -> ast.FunctionDef | None:
    """Returns the function that is the answer, if there is no class ``ModelNew``."""
    if any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        return None
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _NAME]
    return named[-1] if named and not is_jitted(named[-1]) else None


def model_texts(function: ast.FunctionDef, live: LiveTarget) -> list[str]:
    """Returns classes ``ModelNew`` whose ``forward`` calls a function: with settings that are lists as a whole, and with one item.

    What takes ``*args`` gets the inputs and the weights that no parameter is named after, in the module's order; what takes
    ``**kwargs`` gets nothing by them.

    Raises:
        RenderError: a parameter cannot be bound, or an input goes nowhere.
    """
    passed = nested(live.cases[0].domain.inputs)
    inputs = [name for name in live.signature.parameters if name in passed]
    names = [p.arg for p in parameters(function.args)]
    unnamed = [name for name in inputs if name not in names]
    bound: dict[str, str] = {}
    for name in names:
        text = name if name in inputs else _beside(name, live, bound) or _held(name, live, bound.values())
        if not text and name not in defaults(function.args) and unnamed:
            text = unnamed.pop(0)
        if text:
            bound[name] = text
        elif name not in defaults(function.args):
            raise RenderError(
                f"Line {function.lineno}: the parameter `{name}` of {function.name} is neither an input of the "
                "target's forward nor one of its weights or settings."
            )
    more = [*unnamed, *_weights(live, bound.values())] if function.args.vararg else []
    if not {n for n in inputs if isinstance(passed[n], TensorSpec | tuple | list | dict)} <= {
        *bound.values(),
        *more,
    }:
        raise RenderError(
            f"Line {function.lineno}: {function.name} takes ({', '.join(names)}); the target's forward takes "
            f"({', '.join(inputs)})."
        )
    whole = {name: text.removesuffix("[0]") for name, text in bound.items()}
    return [_model(function, each, more, live) for each in ([whole, bound] if whole != bound else [whole])]


def _beside(name: str, live: LiveTarget, bound: dict[str, str]) -> str:
    """Returns the expression for a weight of the layer whose weight was bound last: ``weight, bias`` come together."""
    last = next(reversed(list(bound.values())), "")
    text = f"{last.rpartition('.')[0]}.{name}"
    return text if text in _weights(live, bound.values()) else ""


def _held(name: str, live: LiveTarget, taken: Collection[str]) -> str:
    """Returns the expression for the weight or setting that a name stands for; nothing where there is none."""
    alike: dict[str, float] = {}
    for path, spec in live.cases[0].domain.attributes.items():
        text = live.parts.expression(path)
        if text is None or text in taken:
            continue
        if isinstance(spec, TensorSpec):
            if words_of(name)[-1:] == words_of(path)[-1:]:  # the others say which layer's it is
                alike[text] = likeness(name, path)
        elif name in (own := path.partition("[")[0]).split(".")[-1:] or words_of(name) == words_of(own):
            return text if "[" not in path else f"{text.partition('[')[0]}[0]"
    best = max(alike, key=lambda text: alike[text], default="")
    if best:
        return best
    given = _constructor_arguments(live)
    return ast.unparse(literal(given[name])) if name in given else ""


def _constructor_arguments(live: LiveTarget) -> Mapping[str, object]:
    given = live.init_arguments(live.cases[0])
    try:
        bound = inspect.signature(live.cls).bind(*given.args, **given.kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in bound.arguments.items()}
    return {name: value for name, value in plain.items() if is_literal(value)}


def _weights(live: LiveTarget, taken: Collection[str]) -> list[str]:
    """Returns the expressions for the module's tensors that are not taken, in its order."""
    attributes = live.cases[0].domain.attributes
    held = (live.parts.expression(path) for path, spec in attributes.items() if isinstance(spec, TensorSpec))
    return [text for text in held if text is not None and text not in taken]


def _model(function: ast.FunctionDef, bound: Mapping[str, str], more: Sequence[str], live: LiveTarget) -> str:
    passed = ", ".join([text if more else f"{name}={text}" for name, text in bound.items()] + [*more])
    takes = ", ".join(["self", *live.signature.parameters])
    return f"class ModelNew:\n    def forward({takes}):\n        return {function.name}({passed})\n"
