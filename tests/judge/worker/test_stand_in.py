"""The worker's stand-in for ``self`` reaches parts as the module does, and holds none of its code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelllm_judge.run.module_tree import module_tree
from kernelllm_judge.shared.buffers import Allocator, buffer_bytes
from kernelllm_judge.target.attributes import attributes
from kernelllm_judge.worker.worker import Worker


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3))
        self.eps = 1e-3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def module() -> nn.Module:
    made = nn.Module()
    shared = nn.PReLU()
    made.net = nn.Sequential(nn.Linear(3, 4), shared, Inner(), shared)
    made.blocks = nn.ModuleDict({"down-1": nn.Linear(3, 3), "0": Inner()})
    made.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 2))])
    made.scales = nn.ParameterList([torch.rand(2), torch.rand(3)])
    made.shifts = nn.ParameterDict({"a b": torch.rand(2), "c": torch.rand(3)})
    made.register_buffer("lambda", torch.rand(2))
    made.one = made.other = nn.Parameter(torch.rand(2))
    return made


MODULE = module()


@pytest.fixture(scope="module")
def stand_in() -> Iterator[Any]:
    allocator = Allocator(torch.device("cpu"))
    tensors = [
        *MODULE.named_parameters(remove_duplicate=False),
        *MODULE.named_buffers(remove_duplicate=False),
    ]
    attachment = allocator.reserve(sum(buffer_bytes(t.shape, t.dtype) for _, t in tensors))
    buffers: dict[str, torch.Tensor] = {}
    tree = module_tree(MODULE, allocator, buffers, attributes(MODULE, None))
    assert buffers.keys() == dict(tensors).keys()
    worker = Worker(None, Path(), allocator.fd, "")  # nothing is sent
    worker.state({"allocator": attachment, "tree": json.loads(json.dumps(tree))})
    yield worker.instance
    allocator.close()


TENSORS: dict[str, Callable[[Any], torch.Tensor]] = {
    "index": lambda self: self.net[0].weight,
    "negative index": lambda self: self.net[-2].scale,
    "a shared part": lambda self: self.net[3].weight,
    "slice": lambda self: self.net[1:][1].scale,
    "slice with a step": lambda self: self.layers[::-1][1].weight,
    "list in list": lambda self: self.layers[1][0].bias,
    "iteration": lambda self: next(iter(self.layers)).weight,
    "unpacking": lambda self: self.scales[1] if len([*self.scales]) == 2 else torch.empty(0),
    "key": lambda self: self.blocks["down-1"].weight,
    "numeric key": lambda self: self.blocks["0"].scale,
    "values": lambda self: next(iter(self.blocks.values())).bias,
    "items": lambda self: dict(self.blocks.items())["0"].scale,
    "parameter list": lambda self: self.scales[-1],
    "parameter dict": lambda self: self.shifts["a b"],
    "parameter dict, by attribute": lambda self: self.shifts.c,
    "submodule by name": lambda self: self.get_submodule("layers.1.0").weight,
    "parameter by name": lambda self: self.get_parameter("net.2.scale"),
    "buffer by name": lambda self: self.get_buffer("lambda"),
    "a parameter's second name": lambda self: self.other,
}


@pytest.mark.parametrize("way", TENSORS)
def test_parts_are_reached_as_in_the_module(stand_in: Any, way: str) -> None:
    assert torch.equal(TENSORS[way](stand_in), TENSORS[way](MODULE))


PLAIN: dict[str, Callable[[Any], Any]] = {
    "length of a list": lambda self: (len(self.net), len(self.layers), len(self.scales), len(self.net[1:])),
    "length of a dict": lambda self: (len(self.blocks), len(self.shifts)),
    "keys": lambda self: ([*self.blocks], [*self.blocks.keys()], [*self.shifts]),
    "containment": lambda self: ("down-1" in self.blocks, "up" in self.blocks, "c" in self.shifts),
    "plain values": lambda self: (self.net[2].eps, self.blocks["0"].eps, self.layers[0].in_features),
}


@pytest.mark.parametrize("way", PLAIN)
def test_what_is_no_tensor_is_alike(stand_in: Any, way: str) -> None:
    assert PLAIN[way](stand_in) == PLAIN[way](MODULE)


def test_linear_layers_in_containers_can_be_called(stand_in: Any) -> None:
    x = torch.rand(5, 3)
    with torch.no_grad():
        assert torch.equal(stand_in.layers[0](x), MODULE.layers[0](x))
        assert torch.equal(stand_in.blocks["down-1"](x), MODULE.blocks["down-1"](x))


@pytest.mark.parametrize(
    "call",
    [
        lambda self, x: self.net[2](x),
        lambda self, x: self.net[1](x),
        lambda self, x: self.net(x),
        lambda self, x: self.net[:1](x),
        lambda self, x: self.blocks(x),
        lambda self, x: self.get_submodule("net.2")(x),
    ],
)
def test_the_targets_own_code_cannot_be_called(stand_in: Any, call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="cannot call the target's own submodules"):
        call(stand_in, torch.rand(5, 3))


@pytest.mark.parametrize(
    ("reach", "error"),
    [
        (lambda self: self.net[4], IndexError),
        (lambda self: self.blocks["up"], KeyError),
        (lambda self: self.net.append, AttributeError),
        (lambda self: self.get_submodule("net.7"), AttributeError),
    ],
)
def test_what_is_not_there_raises_as_in_the_module(
    stand_in: Any, reach: Callable[[Any], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        reach(stand_in)


def test_it_is_a_module_with_parameters(stand_in: Any) -> None:
    scale, buffer = stand_in.net[2].scale, getattr(stand_in, "lambda")
    assert isinstance(stand_in, nn.Module) and isinstance(scale, nn.Parameter) and scale.requires_grad
    assert not isinstance(buffer, nn.Parameter) and stand_in.training is MODULE.training


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [1, 2]
        self.nothing: nn.Module | None
        self.register_module("nothing", None)

    def helper(self) -> int:
        return 1


def made_of(module: nn.Module) -> tuple[Any, list[str]]:
    allocator = Allocator(torch.device("cpu"))
    attachment = allocator.reserve(1 << 22)
    tree = module_tree(module, allocator, {}, {"sizes"})
    worker = Worker(None, Path(), allocator.fd, "")  # type: ignore[arg-type]  # nothing is sent
    worker.state({"allocator": attachment, "tree": json.loads(json.dumps(tree))})
    return worker.instance, worker.asked


def test_lists_are_lists_and_cannot_be_changed() -> None:
    made, asked = made_of(Listed())
    assert made.sizes == [1, 2] and isinstance(made.sizes, list)
    for change in (lambda: made.sizes.append(3), lambda: made.sizes.__setitem__(0, 3)):
        with pytest.raises(TypeError, match="cannot change a list"):
            change()
    assert asked == ["a change of a list of the target's"] * 2
    assert made.sizes == [1, 2] and made.nothing is None


def test_what_only_the_target_has_is_recorded_although_the_error_can_be_caught() -> None:
    made, asked = made_of(Listed())
    assert not hasattr(made, "missing") and not asked
    assert not hasattr(made, "helper")
    assert asked == ["`self.helper`, which is no value that the original's forward reads"]
    repr(made)
    assert asked[1:] == ["the text of a module"]


def test_nothing_of_ours_shows(stand_in: Any) -> None:
    assert stand_in.net._get_name() == "Sequential" and stand_in.layers[0]._get_name() == "Linear"
    theirs = {*dir(MODULE)} | {"weight", "scale"}
    assert {*dir(stand_in)} <= theirs
    assert {*dir(stand_in.net)} <= {*dir(MODULE.net)} and {*dir(stand_in.blocks)} <= {*dir(MODULE.blocks)}
    made, _ = made_of(Listed())
    assert {*vars(made.sizes)} == set() and not hasattr(made.sizes, "asked")


def test_what_has_two_names_is_one_object(stand_in: Any) -> None:
    assert stand_in.one is stand_in.other and stand_in.net[1] is stand_in.net[3]
    assert stand_in.net[1] is not stand_in.net[2] and stand_in.one is not stand_in.scales[0]


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.double, nn.Module.cpu])
@pytest.mark.parametrize("part", ["net", "layers.0", ""])
def test_a_module_cannot_be_changed(part: str, change: Callable[[nn.Module], Any]) -> None:
    made, asked = made_of(nn.Module() if not part else module())
    with pytest.raises(TypeError, match="cannot change"):
        change(made.get_submodule(part))
    assert asked == ["a change of a module's dtype or device"]


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(width=3, unread=4)
        self.linear = nn.Linear(2, 2)
        self.linear.tag = 1


@pytest.mark.parametrize("path", ["config.unread", "linear.tag"])
def test_what_a_part_holds_beside_what_is_read_is_recorded(path: str) -> None:
    made, asked = made_of(Configured())
    owner, _, name = path.partition(".")
    assert not hasattr(getattr(made, owner), name)
    assert asked == [f"`self.{name}`, which is no value that the original's forward reads"]


class Limits:
    low = -1.0
    unread = 5.0


class Clamped(nn.Module):
    HIGH = 2.0
    SCALE = 3.0
    UNREAD = 4.0

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits()
        self.SCALE = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(self.limits.low, self.HIGH) * self.SCALE


def test_values_of_classes_are_there_if_forward_reads_them() -> None:
    made = Clamped()
    tree = module_tree(made, Allocator(torch.device("cpu")), {}, attributes(made, None))
    assert tree["values"] == {"HIGH": {"float": "2.0"}, "SCALE": {"float": "0.5"}}
    assert tree["children"]["limits"]["values"] == {"low": {"float": "-1.0"}}
    assert {"UNREAD"} <= set(tree["withheld"])
