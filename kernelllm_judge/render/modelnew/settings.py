"""What a completion's ``ModelNew`` makes: its modules and their attributes, from the description by a worker.

The worker ran the completion, so nothing in the description is believed to be well-formed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelllm_judge.core.syntax import Substitute, expression, is_literal, literal
from kernelllm_judge.render.errors import RenderError

PLACE = "_"
"""Stands for the target's tensor in ``OwnTensor.form``."""

MOST = 20_000
"""The most attributes that are read."""


@dataclass(frozen=True)
class OwnTensor:
    """A tensor that a constructor makes."""

    shape: tuple[int, ...]
    """Its shape as it is made."""
    made: ast.Call | None = None
    """What makes it, if that gives the same values every time."""
    registered: bool = False
    """Whether it is a parameter or a buffer, which follow the module's dtype."""
    form: ast.expr = field(default_factory=lambda: ast.Name(PLACE, ast.Load()))
    """What was done with it afterwards, with ``PLACE`` for the tensor."""

    @property
    def value(self) -> float | None:
        """The value that all elements have at first, if it is known."""
        match self.made:
            case ast.Call(func=ast.Attribute(attr="zeros")):
                return 0.0
            case ast.Call(func=ast.Attribute(attr="ones")):
                return 1.0
            case ast.Call(
                func=ast.Attribute(attr="full"), args=[_, ast.Constant(value=int() | float() as fill)]
            ):
                return float(fill)
        return None

    def written(self, tensor: ast.expr) -> ast.expr:
        """Writes its form for a tensor."""
        return Substitute({PLACE: tensor}).apply(self.form)


@dataclass(frozen=True)
class Setting:
    """An attribute that the constructor sets."""

    kind: Literal["value", "tensor", "alias", "layer", "module", "other"]
    line: int
    """The line that sets it; 0 where that is not known."""
    value: object = None
    given: bool = False
    """Whether a ``value`` is one of those that the constructor is called with."""
    tensor: OwnTensor | None = None
    form: ast.expr | None = None
    """What an ``alias`` stands for: an expression over ``self``, such as ``self.conv.weight.half()``."""
    layer: str = ""
    """The class of a layer, such as ``torch.nn.Linear``; of a ``module``, a class of the completion."""
    stated: Mapping[str, object] = field(default_factory=dict)
    """The plain arguments with which a layer is built, by parameter; with defaults."""
    parts: int = 0
    """How many modules a list or a sequence holds; they are attributes ``layers.0``, ``layers.1``, …"""


@dataclass(frozen=True)
class Built:
    """A module of a class of the completion."""

    path: str
    cls: str
    settings: Mapping[str, Setting]
    """By dotted name, in the order in which they are set."""


def modules_of(reply: Mapping[str, Any], given: Collection[object]) -> list[Built]:
    """Reads the modules in a worker's description, the outer ones first.

    Args:
        reply: the description.
        given: the plain values that the constructor was called with.
    """
    try:
        modules = [
            Built(
                _name(module["path"]),
                _name(module["class"]),
                {_name(one["name"]): _setting(one, given) for one in module["attributes"][:MOST]},
            )
            for module in reply["modules"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError) as error:
        raise RenderError(
            f"The process that ran ModelNew's constructor described it wrongly: {error}"
        ) from None
    if not modules or modules[0].path:
        raise RenderError("The process that ran ModelNew's constructor did not describe ModelNew.")
    return modules


def numbers_of(reply: Mapping[str, Any]) -> dict[str, bool | int | float]:
    """Reads the numbers among a completion's top-level names in a worker's description."""
    numbers = reply.get("numbers")
    items = numbers.items() if isinstance(numbers, dict) else ()
    return {name: value for name, value in items if type(value) in (bool, int, float)}


def leaves(value: object, depth: int = 0) -> list[object]:
    """Returns the plain values in a constructor's argument."""
    if is_literal(value) and not isinstance(value, tuple):
        return [value]
    inner = value if isinstance(value, tuple | list) else getattr(value, "__dict__", value)
    held = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, tuple | list) else ()
    return [leaf for item in held if depth < 4 for leaf in leaves(item, depth + 1)]


def same(a: object, b: object) -> bool:
    """Whether two values are equal, where True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _setting(one: Mapping[str, Any], given: Collection[object]) -> Setting:
    kind, line = one["kind"], int(one["line"])
    match kind:
        case "value":
            value = _value(one["value"])
            return Setting(kind, line, value, given=any(same(value, other) for other in given))
        case "tensor":
            made = one["made"] and _call(f"torch.{_name(one['made']['name'])}", one["made"])
            shape = tuple(map(int, one["shape"]))
            form = _stepped(ast.Name(PLACE, ast.Load()), one["steps"])
            return Setting(kind, line, tensor=OwnTensor(shape, made or None, bool(one["registered"]), form))
        case "alias":
            return Setting(kind, line, form=_stepped(_reached(_name(one["of"])), one["steps"]))
        case "layer":
            stated = {_name(name): _value(value) for name, value in one["stated"].items()}
            return Setting(kind, line, layer=_name(one["layer"]), stated=stated, parts=int(one["parts"]))
        case "module":
            return Setting(kind, line, layer=_name(one["class"]))
        case "other":
            return Setting(kind, line)
    raise ValueError(f"an attribute of kind {kind!r}")


def _name(text: str) -> str:
    if re.fullmatch(r"(\w+(\.\w+)*)?", text) is None:
        raise ValueError(f"a name {text[:60]!r}")
    return text


def _value(value: Any) -> object:
    found = tuple(map(_value, value["tuple"])) if isinstance(value, dict) else value
    if not is_literal(found):
        raise ValueError("a value that is no literal")
    return found


def _reached(name: str) -> ast.expr:
    """Returns the expression for a dotted name, in which numbers are subscripts."""
    return expression(re.sub(r"\.(\d+)\b", r"[\1]", name))


def _stepped(tensor: ast.expr, steps: list[Mapping[str, Any]]) -> ast.expr:
    for step in steps:
        member = f"{ast.unparse(tensor)}.{_name(step['name'])}"
        tensor = _call(member, step) if step["called"] else expression(member)
    return tensor


def _call(function: str, call: Mapping[str, Any]) -> ast.Call:
    args = [_argument(value) for value in call["args"]]
    keywords = [ast.keyword(_name(name), _argument(value)) for name, value in call["kwargs"].items()]
    return ast.Call(expression(function), args, keywords)


def _argument(value: Any) -> ast.expr:
    if isinstance(value, dict) and "torch" in value:
        return expression(f"torch.{_name(value['torch'])}")
    return literal(_value(value))
