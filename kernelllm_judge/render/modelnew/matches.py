"""Matches a completion's own weights and layers with the target's, by evidence.

Names, shapes, classes, first values and order say which belongs to which. None of it proves anything, so several
matches may be returned; the judge varies the target's weights, and rejects a wrong one.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from kernelllm_judge.core.records import Scalar, TensorSpec
from kernelllm_judge.render.modelnew.instances import Instance
from kernelllm_judge.render.modelnew.layers import has_weights, is_stock
from kernelllm_judge.render.modelnew.settings import Setting, same

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

MOST = 4
"""Matches that are tried for one completion."""
_BEAM = 32
_GAP = 60.0
"""A match whose score is so much below the best one's is not tried."""
_SIZES = frozenset(
    {"in_features", "out_features", "in_channels", "out_channels", "kernel_size", "groups", "num_features"}
    | {"num_channels", "normalized_shape", "num_embeddings", "embedding_dim"}
)
"""Arguments in which a layer that stands for another must be the same."""
_ROLES = {
    **dict.fromkeys(("w", "kernel", "filter", "gamma"), "weight"),
    **dict.fromkeys(("b", "beta"), "bias"),
    "mean": "running_mean",
    "var": "running_var",
}
"""Other words for what layers call their tensors."""


@dataclass(frozen=True)
class Match:
    """The target's name for each own tensor and layer, by its own; None where the own first values are written out."""

    names: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Option:
    own: str
    theirs: str | None
    score: float
    takes: frozenset[str]
    """Tensors and layers of the target that nothing else may stand for."""
    is_layer: bool = False


class FirstValues:
    """The value that all elements of a target's tensor have at first; builds the target once, if it is asked."""

    def __init__(self, live: LiveTarget) -> None:
        """Prepares; modules are built when they are asked for."""
        self._live = live

    def __call__(self, name: str) -> float | None:
        """Returns the value for a tensor by its dotted name; None if its elements differ."""
        tensor = self._tensors.get(name)
        if tensor is None or not tensor.numel():
            return None
        low, high = tensor.detach().aminmax()
        return float(low) if low == high else None

    @functools.cached_property
    def _tensors(self) -> Mapping[str, torch.Tensor]:
        module = self._live.build(self._live.cases[0])
        return dict([*module.named_parameters(), *module.named_buffers()])


def matches(
    instances: Mapping[str, Instance],
    attributes: Mapping[str, TensorSpec | Scalar],
    first_value: Callable[[str], float | None],
) -> list[Match]:
    """Returns the likeliest matches, the best first; at least one."""
    choices: list[list[_Option]] = []
    owned = list(_own(instances))
    namesakes = _by_rank(owned, attributes)
    for position, (own, setting) in enumerate(owned):
        namesake = namesakes.get(own, own)
        options = list(_options(own, namesake, setting, position / len(owned), attributes, first_value))
        if options:
            choices.append(sorted(options, key=lambda option: -option.score)[:_BEAM])
    choices.sort(key=lambda options: -options[0].score)
    states: list[tuple[float, frozenset[str], tuple[_Option, ...]]] = [(0.0, frozenset(), ())]
    for options in choices:
        grown = [
            (score + option.score, taken | option.takes, (*chosen, option))
            for score, taken, chosen in states
            for option in _available(options, taken)
        ]
        states = sorted(grown or states, key=lambda state: -state[0])[:_BEAM]
    likely = [chosen for score, _, chosen in states[:MOST] if score > states[0][0] - _GAP]
    return [Match({option.own: option.theirs for option in chosen}) for chosen in likely]


def _available(options: Sequence[_Option], taken: frozenset[str]) -> list[_Option]:
    """Returns the options that are left; where there are none, layers that are taken: the target may call one twice."""
    left = [option for option in options if not option.takes & taken]
    return left or [option for option in options if option.is_layer]


def _own(instances: Mapping[str, Instance]) -> Iterator[tuple[str, Setting]]:
    """Yields the tensors and layers that are used, with their absolute names."""
    for path, instance in instances.items():
        used = _used(instance)
        for name, setting in instance.settings.items():
            if setting.kind in ("tensor", "layer") and name.partition(".")[0] in used:
                yield f"{path}.{name}" if path else name, setting


def _by_rank(
    owned: Sequence[tuple[str, Setting]], attributes: Mapping[str, TensorSpec | Scalar]
) -> Mapping[str, str]:
    """Returns the target's layers by the own ones in lists that number them otherwise.

    The third ``Linear`` of a list then stands for the third of the target's list, whatever is between them.
    """
    mine: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    theirs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for own, setting in owned:
        if setting.kind == "layer" and has_weights(setting.layer):
            mine[own.rpartition(".")[0], setting.layer.rpartition(".")[2]].append(own)
    for name, cls in attributes.items():
        held, _, number = name.removesuffix(".__class__").rpartition(".")
        if name.endswith(".__class__") and number.isdigit() and isinstance(cls, str):
            theirs[held, cls.rpartition(".")[2]].append(f"{held}.{number}")
    pairs = [
        (each, sorted(theirs[key], key=lambda name: int(name.rpartition(".")[2])))
        for key, each in mine.items()
    ]
    return {
        one: other
        for each, others in pairs
        if len(each) == len(others)
        for one, other in zip(each, others, strict=True)
    }


def _used(instance: Instance) -> set[str]:
    """Returns the attributes that methods read, and those behind their aliases."""
    found = {name for method in instance.methods.values() for name in _attributes_of_self(method)}
    todo = list(found)
    while todo:
        setting = instance.settings.get(todo.pop())
        new = set(_attributes_of_self(setting.form)) - found if setting and setting.form else set()
        found |= new
        todo += new
    return found


def _attributes_of_self(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            yield inner.attr


def _options(
    own: str,
    namesake: str,
    setting: Setting,
    position: float,
    attributes: Mapping[str, TensorSpec | Scalar],
    first_value: Callable[[str], float | None],
) -> Iterator[_Option]:
    if setting.kind == "layer":
        yield from _layers(own, namesake, setting, position, attributes)
        return
    assert setting.tensor is not None
    tensors = [(name, spec) for name, spec in attributes.items() if isinstance(spec, TensorSpec)]
    fitting = [(n, spec) for n, spec in tensors if _fits(setting.tensor.shape, spec.shape)]
    exact = [n for n, spec in fitting if n == own]
    for index, (name, spec) in enumerate(fitting):
        if exact and name != own:
            continue
        score = likeness(own, name) - abs(position - index / len(fitting))
        score += 15 * (setting.tensor.shape == spec.shape)
        if setting.tensor.value is not None and len(fitting) > 1:
            score += 10 * (setting.tensor.value == first_value(name))
        yield _Option(own, name, score, frozenset({name}))
    if setting.tensor.made is not None and not isinstance(attributes.get(own), TensorSpec):
        yield _Option(own, None, -5 if setting.tensor.registered else 5, frozenset())


def _fits(own: tuple[int, ...], theirs: Sequence[int | str]) -> bool:
    """Whether shapes are equal but for axes of size 1, or for the order of the first two axes."""
    return _plain(own) == _plain(theirs) or is_transposed(own, theirs)


def is_transposed(own: tuple[int, ...], theirs: Sequence[int | str]) -> bool:
    """Whether a shape becomes another when its first two axes change places."""
    return len(own) > 1 and [own[1], own[0], *own[2:]] == list(theirs)


def _plain(shape: Sequence[int | str]) -> list[int | str]:
    return [size for size in shape if size != 1]


def _layers(
    own: str, namesake: str, setting: Setting, position: float, attributes: Mapping[str, TensorSpec | Scalar]
) -> Iterator[_Option]:
    classes = {
        name.removesuffix(".__class__"): cls
        for name, cls in attributes.items()
        if name.endswith(".__class__")
    }
    fitting = [n for n, cls in classes.items() if isinstance(cls, str) and is_stock(cls, setting.layer)]
    other = {
        n: [k for k, v in setting.stated.items() if not _holds(attributes, f"{n}.{k}", v)] for n in fitting
    }
    fitting = [name for name in fitting if name == namesake or not _SIZES & set(other[name])]
    if namesake in fitting:
        fitting = [namesake]
    elif (own in classes and not own.rpartition(".")[2].isdigit()) or not has_weights(setting.layer):
        return  # the namesake is of another class; or what the completion states is all that there is to know
    for index, name in enumerate(fitting):
        score = 20 + likeness(own, name) - abs(position - index / len(fitting)) - 10 * len(other[name])
        inside = {other for other in attributes if other.startswith(f"{name}.") and not setting.parts}
        yield _Option(own, name, score, frozenset({name, *inside}), is_layer=True)


def _holds(attributes: Mapping[str, TensorSpec | Scalar], name: str, value: object) -> bool:
    """Whether a layer's attribute may come from a constructor's argument of its name."""
    if f"{name}[0]" in attributes:
        values = value if isinstance(value, tuple) else itertools.repeat(value, 3)
        items = [attributes[f"{name}[{i}]"] for i in range(3) if f"{name}[{i}]" in attributes]
        return all(map(same, items, values))
    held = attributes.get(name)
    if name.endswith(".bias") or isinstance(held, TensorSpec):
        return isinstance(held, TensorSpec) == bool(value)
    return name not in attributes or same(held, value)


def likeness(own: str, theirs: str) -> float:
    """Returns how much two dotted names have in common, at most 100."""
    if own == theirs:
        return 100
    mine, other = words_of(own), words_of(theirs)
    if mine == other:
        return 90
    score = 10.0 * len(set(mine) & set(other))
    if mine and other and {mine[-1], other[-1]} <= {"weight", "bias", "running_mean", "running_var"}:
        score += 20 if mine[-1] == other[-1] else -20
    return score


def words_of(name: str) -> Sequence[str]:
    """Returns ``["conv", "1", "weight"]`` for ``conv1_w``."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    text = text.replace("running_mean", "mean").replace("running_var", "var")
    words = re.findall(r"[a-z]+|\d+", text)
    return [_ROLES.get(word, word) for word in words]
