"""What a recorded call depends on, which is asked for at every call."""

import gc
import weakref

import pytest
import torch
from torch import nn

from pytest_kernelllm.beside.optimize.graphs import Parts, memory_of


@pytest.fixture
def model():
    block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    twice = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(block, nn.Linear(4, 4, bias=False), nn.ModuleList(), *twice, block)


def same(found, model):
    return list(map(id, found)) == list(map(id, model.modules()))


def replace_by_another(model):
    model[1] = nn.Linear(4, 4)


def replace_by_a_known_one(model):
    model[1] = model[0]


def replace_in_place_of_one_that_is_gone(model):
    del model[1]
    gc.collect()
    model.append(nn.Linear(4, 4, bias=False))


def add_below(model):
    model[0].add_module("more", nn.ReLU())


def remove_below(model):
    del model[0][1]


def move_to_the_next(model):
    model[4].insert(0, model[3].pop(-1))


def swap(model):
    model[0], model[1] = model[1], model[0]


@pytest.mark.parametrize(
    "change",
    [
        replace_by_another,
        replace_by_a_known_one,
        replace_in_place_of_one_that_is_gone,
        add_below,
        remove_below,
        move_to_the_next,
        swap,
    ],
)
def test_every_change_of_the_tree_is_seen(model, change):
    parts = Parts()
    assert same(parts.modules(model), model)
    assert same(parts.modules(model), model)
    change(model)
    assert same(parts.modules(model), model)
    assert same(parts.modules(model), model)


def test_the_tree_is_walked_once(model, monkeypatch):
    parts = Parts()
    parts.modules(model)
    monkeypatch.setattr(nn.Module, "modules", lambda self: pytest.fail("walked again"))
    assert len(parts.modules(model)) == 12


def test_no_module_is_kept_alive():
    parts, model = Parts(), nn.Sequential(nn.Linear(4, 4))
    inner = weakref.ref(model[0])
    parts.modules(model)
    del model
    gc.collect()
    assert inner() is None


def test_a_scripted_module_has_parts_too():
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4))), nn.ReLU())
    parts = Parts()
    assert same(parts.modules(model), model)
    assert len(memory_of(parts.modules(model))) == 2


def move(model):
    model[1].weight.data = model[1].weight.data.clone()


def set_anew(model):
    model[0][0].bias = nn.Parameter(torch.ones(4))


def drop(model):
    model[0][0].bias = None


def buffer(model):
    model[0][1].running_mean = torch.ones(4)


@pytest.mark.parametrize("change", [move, set_anew, drop, buffer])
def test_weights_and_buffers_elsewhere_are_seen(model, change):
    parts = Parts()
    before = memory_of(parts.modules(model))
    kept = [*model.parameters(), *model.buffers()], model[1].weight.data
    assert memory_of(parts.modules(model)) == before
    change(model)
    assert memory_of(parts.modules(model)) != before
    assert kept
