"""Copies of modules are what ``copy.deepcopy`` makes, whatever a module holds."""

import copy
import functools
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from kernelllm_judge.truth.calls import copied


class Holding(nn.Module):
    """Holds what modules hold in ordinary repositories, and changes all of it when it is called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.layer.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_parameter("missing", None)
        self.shared = [1, 2]
        self.other = nn.ModuleDict({"one": nn.ReLU(), "again": nn.Sequential(nn.Dropout(0.5))})
        self.other["again"].shared = self.shared
        self.other["again"].owner = [self]  # no part of it, but the same module
        self.table = {"calls": 0, "at": {(1, 2): [3]}}
        self.ordered = OrderedDict(a=1)
        self.names = {"a", "b"}
        self.plain = torch.arange(4.0)
        self.bound = self.scaled
        self.partial = functools.partial(self.scaled, by=3)
        self.register_forward_hook(lambda module, given, output: output)

    def scaled(self, x, by=2):
        return self.layer(x) * by

    def forward(self, x):
        self.count += 1
        self.shared.append(len(self.shared))
        self.table["calls"] += 1
        self.table["at"][1, 2].append(4)
        self.ordered["b"] = 2
        self.names.clear()
        self.plain.add_(1)
        self.layer.extra = "new"
        self.other["again"].owner[0].tag = "seen"
        del self.other["one"]
        return self.bound(x) + self.partial(x) + self.plain


class Slotted(nn.Linear):
    __slots__ = ("note",)


class OwnWay(nn.Linear):
    def __deepcopy__(self, memo):
        made = OwnWay(self.in_features, self.out_features)
        made.weight, made.bias = (copy.deepcopy(p, memo) for p in (self.weight, self.bias))
        made.made = "by itself"
        return made


class OwnState(nn.Linear):
    def __getstate__(self):
        return {**self.__dict__, "cache": None}


def slotted():
    module = Slotted(4, 4)
    module.note = ["kept"]
    return module


def own_state():
    module = OwnState(4, 4)
    module.cache = "dropped"
    return module


MODULES = {
    "holding": Holding,
    "slots": slotted,
    "own way": lambda: nn.Sequential(OwnWay(4, 4), nn.ReLU()),
    "own state": own_state,
    "parametrized": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "list": lambda: nn.ModuleList([nn.Linear(4, 4)])[0],
    "batch norm": lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.ReLU()),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
    "recurrent": lambda: nn.LSTM(4, 4),
}


def alike(one, other, seen):
    """Whether two objects are the same in all that they hold; ``seen`` pairs what was met, so that sharing is the same."""
    if id(one) in seen:
        return seen[id(one)] is other
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        seen[id(one)] = other
        return torch.equal(one, other) and one.requires_grad == other.requires_grad
    if isinstance(one, nn.Module):
        seen[id(one)] = other
        slots = [getattr(m, "note", None) for m in (one, other)]
        return alike(vars(one), vars(other), seen) and alike(*slots, seen)
    if isinstance(one, dict):
        seen[id(one)] = other
        return list(one) == list(other) and all(alike(one[k], other[k], seen) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(alike(a, b, seen) for a, b in zip(one, other, strict=True))
    if hasattr(one, "__self__"):
        return alike(one.__self__, other.__self__, seen) and one.__func__ is other.__func__
    if isinstance(one, weakref.ref):
        return alike(one(), other(), seen)
    if isinstance(one, functools.partial):
        return alike(one.func, other.func, seen) and one.keywords == other.keywords
    if one is not other and type(one).__eq__ is object.__eq__ and hasattr(one, "__dict__"):
        return alike(vars(one), vars(other), seen)
    return one is other or one == other


@pytest.mark.parametrize("name", MODULES)
def test_a_copy_is_the_one_that_deepcopy_makes(name):
    module = MODULES[name]()
    assert alike(copy.deepcopy(module), copied(module, torch.clone), {})


def test_nothing_that_a_call_changes_is_shared():
    module = Holding()
    before = copy.deepcopy(module)
    made = copied(module, lambda tensor: tensor, torch.clone)
    x = torch.randn(2, 4)
    assert torch.equal(made(x), copy.deepcopy(module)(x))
    assert made.tag == "seen" and made.count == 1
    assert alike(before, module, {})
    assert made.layer.weight is made.tied.weight
    assert made.layer.weight.data_ptr() == module.layer.weight.data_ptr()  # as the change says


def test_parameters_and_buffers_are_changed_once_each():
    calls = []

    def double(tensor):
        calls.append(tensor.shape)
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    made = copied(Holding(), double)
    assert len(calls) == 4  # a tied weight, two biases, a count
    assert made.layer.weight.dtype == torch.float64 and made.missing is None
