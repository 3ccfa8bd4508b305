"""Reads the expressions of a constructor that make tensors, without executing them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelllm_judge.core.syntax import Substitute, call_name, dotted, expression, is_literal, literal
from kernelllm_judge.render.modelnew.devices import is_device
from kernelllm_judge.render.modelnew.values import KnownValue, Unknown, evaluate, evaluate_all

PLACE = "_"
"""Stands for the target's tensor in ``OwnTensor.form``."""

_SHAPED = frozenset({"ones", "zeros", "empty", "rand", "randn", "full", "Tensor"})
"""Functions of torch that make a tensor from the shape in their first arguments."""
_CONSTANT = frozenset({"ones", "zeros", "full", "eye", "arange", "linspace", "tensor"})
"""Functions of torch whose result is the same every time."""
_SAME = frozenset(["clone", "cpu", "cuda", "data", "detach", "requires_grad_"])
"""What changes no value of a tensor."""
_CARRIED = frozenset(
    {
        "T",
        "mT",
        "t",
        "transpose",
        "permute",
        "contiguous",
        "expand",
        "flatten",
        "reshape",
        "squeeze",
        "unsqueeze",
    }
    | {"view", "to", "type", "bfloat16", "double", "float", "half"}
)
"""Casts and changes of layout, which ``forward`` repeats on the target's tensor."""


@dataclass(frozen=True)
class OwnTensor:
    """A tensor that a constructor makes."""

    shape: tuple[int, ...] | None = None
    """Its shape as it is made, if that is known."""
    made: ast.expr | None = None
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


def made_by(function: str, call: ast.Call, names: Mapping[str, KnownValue]) -> OwnTensor:
    """Returns the tensor that a function of torch makes.

    Args:
        function: its name with ``torch.``.
        call: the call of it.
        names: the known values by name.
    """
    name = function.removeprefix("torch.")
    return OwnTensor(_shape(name, call.args, names), _made(name, call, names))


def step(node: ast.expr) -> tuple[ast.expr, Callable[[ast.expr], ast.expr] | None] | None:
    """Takes the last step off an expression over a tensor: ``w`` and how to write ``.half()`` for ``w.half()``.

    Returns:
        The tensor and a function that writes the step behind another tensor, None for steps that change no
        value; or None if the expression is not of such a form.
    """
    match node:
        case ast.Attribute(value=base, attr=name) | ast.Call(func=ast.Attribute(value=base, attr=name)):
            moved = (
                name == "to"
                and isinstance(node, ast.Call)
                and all(map(is_device, node.args))
                and not node.keywords
            )
            if name in _SAME or moved:
                return base, None
            if name in _CARRIED:
                return base, lambda tensor: _behind(node, tensor)
    return None


def _behind(node: ast.expr, tensor: ast.expr) -> ast.expr:
    new = copy.deepcopy(node)
    attribute = new.func if isinstance(new, ast.Call) else new
    assert isinstance(attribute, ast.Attribute)
    attribute.value = tensor
    return new


def carried(node: ast.expr, names: Mapping[str, KnownValue]) -> bool:
    """Writes a step's arguments out in place; returns whether all of them are plain values or dtypes."""
    if not isinstance(node, ast.Call):
        return True
    for arguments in (node.args, [keyword.value for keyword in node.keywords]):
        for argument in arguments:
            if not _is_plain(argument, names):
                return False
    node.args = [_written(argument, names) for argument in node.args]
    for keyword in node.keywords:
        keyword.value = _written(keyword.value, names)
    return True


def with_tensor(form: ast.expr, tensor: ast.expr) -> ast.expr:
    """Writes ``OwnTensor.form`` for a tensor."""
    return Substitute({PLACE: tensor}).apply(form)


def _is_plain(node: ast.expr, names: Mapping[str, KnownValue]) -> bool:
    if (dotted(node) or "").startswith("torch.") or isinstance(node, ast.Constant):
        return True
    try:
        return is_literal(evaluate(node, names).value)
    except Unknown:
        return False


def _written(node: ast.expr, names: Mapping[str, KnownValue]) -> ast.expr:
    if (dotted(node) or "").startswith("torch."):
        return node
    return literal(evaluate(node, names).value)


def _made(name: str, call: ast.Call, names: Mapping[str, KnownValue]) -> ast.expr | None:
    kept = [k for k in call.keywords if k.arg not in ("device", "requires_grad")]
    plain = all(_is_plain(k.value, names) for k in kept)
    if name not in _CONSTANT or not plain or not all(k.arg for k in kept):
        return None
    keywords = [ast.keyword(k.arg, _written(k.value, names)) for k in kept]
    try:
        arguments = [literal(known.value) for known in evaluate_all(call.args, names)]
    except Unknown:
        return None
    return ast.Call(expression(f"torch.{name}"), arguments, keywords)


def _shape(
    name: str, arguments: Sequence[ast.expr], names: Mapping[str, KnownValue]
) -> tuple[int, ...] | None:
    if name == "tensor" and arguments and _is_plain(arguments[0], names):
        return _nested(evaluate(arguments[0], names).value)
    if name not in _SHAPED or not arguments:
        return None
    try:
        sizes = [known.value for known in evaluate_all(arguments, names)]
    except Unknown:
        return None
    shape = sizes[0] if isinstance(sizes[0], tuple) else tuple(sizes)
    if name == "full":
        shape = sizes[0] if isinstance(sizes[0], tuple) else (sizes[0],)
    return shape if all(type(size) is int for size in shape) else None


def _nested(value: object) -> tuple[int, ...]:
    return (len(value), *_nested(value[0])) if isinstance(value, tuple) and value else ()


def is_parameter(call: ast.Call) -> bool:
    """Whether a call makes an ``nn.Parameter``."""
    return call_name(call).rpartition(".")[2] == "Parameter"
