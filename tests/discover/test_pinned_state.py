"""Whatever an original reads: an instance in which it differs is outside the domain, and the judged one is inside."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from kinds_of_state import KINDS, Kind

from kernelllm_judge.target.live import LiveTarget, TargetError, load_target
from kernelllm_runtime.domain import matches, misfit
from kernelllm_runtime.watch import watch
from pytest_kernelllm.discover.scan import scan

HEAD = """
import abc, collections, dataclasses, enum, fractions, functools, math, operator, types
import numpy as np
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

Base = nn.Module
"""

BODY = """
@triton_candidate(inputs=lambda: torch.zeros(2))
class Model(Base):
    def __init__(self):
        super().__init__()
        {init}
    {body}
    def forward(self, x):
        found = [{reads}]
        return torch.stack([torch.as_tensor(r, dtype=torch.float64).reshape(()) for r in found]) + x.sum()
"""


def source(kinds: Iterable[tuple[Kind, bool]]) -> str:
    """A file with a target that keeps all of these values, and reads some."""
    kinds = list(kinds)
    tops = [kind.top for kind, _ in kinds]
    inner = {
        "init": "\n".join(kind.init for kind, _ in kinds) or "pass",
        "body": "\n".join(kind.body for kind, _ in kinds),
    }
    shown = {
        name: textwrap.indent(text, " " * (8 if name == "init" else 4)).lstrip()
        for name, text in inner.items()
    }
    reads = ", ".join(["1.0", *(kind.read for kind, read in kinds if read)])
    return "\n".join([HEAD, *tops, BODY.format(reads=reads, **shown)])


class Loaded:
    """A target whose file was just written, and one instance of it."""

    def __init__(self, root: Path, text: str, name: str) -> None:
        (root / f"{name}.py").write_text(text, encoding="utf-8")
        (root / "other.py").write_text("", encoding="utf-8")
        importlib.invalidate_caches()
        [target] = scan([root / f"{name}.py"], root).targets
        self.live: LiveTarget = load_target(root, target)
        self.file: types.ModuleType = sys.modules[self.live.cls.__module__]
        self.domain = self.live.cases[0].domain
        self.module = self.live.build(self.live.cases[0])
        self.watched = watch(self.module, self.domain.attributes)

    @torch.no_grad()
    def result(self) -> list[float]:
        found: list[float] = self.module(torch.zeros(2)).tolist()
        return found

    @torch.no_grad()
    def reason(self) -> str | None:
        """Why a call is outside the domain now; asserts that a changed module is noticed as one."""
        bound: inspect.BoundArguments = self.live.signature.bind(torch.zeros(2))
        reason = matches(self.domain, self.module, bound, "cpu")
        assert misfit(self.domain, self.module) == reason
        if reason is not None:
            assert self.watched.unchanged(self.module) is None, f"{reason}, which is not noticed"
        return reason

    @torch.no_grad()
    def change(self, kind: Kind) -> None:
        exec(kind.change, {**vars(self.file), "m": self.module, "ns": self.file})


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def loaded(kinds: Iterable[tuple[Kind, bool]]) -> Loaded:
        names.append(f"pinned_{len(names)}_{tmp_path.name.replace('-', '_')}")
        return Loaded(tmp_path, source(kinds), names[-1])

    yield loaded
    for name in (*names, "other"):
        sys.modules.pop(name, None)


UNCACHED = ("cached property", "attribute of a method", "class made while it runs")
"""Kinds in which calling the original changes the module, or an attribute is a new object each time."""


@pytest.mark.parametrize("name", KINDS)
def test_what_is_read_is_pinned(load, name) -> None:
    kind = KINDS[name].numbered(1, 2.0, 3.0)
    loaded = load([(kind, True)])
    assert loaded.reason() is None
    before = loaded.result()
    assert loaded.watched.unchanged(loaded.module) is not None or name in UNCACHED
    loaded.change(kind)
    assert loaded.result() != before, "the test changes nothing"
    assert loaded.reason() is not None


def test_where_everything_is_read_an_abstract_class_is_compared_all_the_same(load) -> None:
    kinds = [
        KINDS[name].numbered(number, 2.0, 3.0)
        for number, name in enumerate(("__dict__", "user dict's subclass"))
    ]
    loaded = load([(kinds[0], True), (kinds[1], False)])
    assert loaded.reason() is None
    loaded.change(kinds[1])
    assert loaded.reason() is not None


NUMBERS = st.sampled_from([2.0, 3.0, 0.5, 7.25])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_another_value_is_outside_the_domain_or_makes_no_difference(load, data) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    assume(sum("Base = " in repr(KINDS[name]) for name in names) <= 1)  # a class has one base…
    assume(sum("def __getattr__" in KINDS[name].body for name in names) <= 1)  # …and one such method
    kinds = []
    for number, name in enumerate(names):
        old, new = data.draw(NUMBERS), data.draw(NUMBERS)
        kinds.append((KINDS[name].numbered(number, old, new + (new == old)), data.draw(st.booleans())))
    loaded = load(kinds)
    assert loaded.reason() is None
    before = loaded.result()
    loaded.change(data.draw(st.sampled_from(kinds))[0])
    assert loaded.reason() is not None or loaded.result() == before


OF_PARTS = {name for name in KINDS if name.startswith("child's")} | {
    "attribute of a stock layer",
    "parent",
    "config, by __getattr__",
}
"""Kinds whose value is read by code that counts as called."""


@pytest.mark.parametrize("name", sorted(KINDS.keys() - OF_PARTS))
def test_what_is_not_read_may_differ(load, name) -> None:
    kind = KINDS[name].numbered(1, 2.0, 3.0)
    loaded = load([(kind, False)])
    before = loaded.result()
    loaded.change(kind)
    assert loaded.result() == before
    reason = loaded.reason()
    if reason is not None:
        path = reason.split("`")[1]
        plain = {k for k in loaded.domain.attributes if not k.startswith(("value:", "global:"))}
        assert path in plain, "what is not read is pinned only where it is a plain attribute"


REFUSED = {
    "a socket": (
        "self.a = socket.socket(); self.a.close()",
        "self.a.family",
        "`self.a` is a socket, whose value cannot",
    ),
    "a lock in a dict": (
        "self.a = {1: threading.Lock()}",
        "len(self.a)",
        "`self.a` is a lock, whose value cannot be",
    ),
    "a generator": (
        "self.a = (i for i in [1])",
        "self.a.gi_running",
        "`self.a` is a generator, whose value cannot",
    ),
    "an object() of a config": (
        "self.c = types.SimpleNamespace(a=object())",
        "self.c.a is None",
        "`self.c.a` is an object, whose value cannot",
    ),
    "the environment": (
        "",
        "float(os.environ.get('A', 1))",
        "`Model.forward` reads the environment, a file",
    ),
    "globals()": ("", "globals()['os'] is None", "`Model.forward` reads the environment, a file"),
    "a flag of torch": (
        "",
        "torch.backends.cudnn.benchmark",
        "`Model.forward` reads the environment, a file, a setting",
    ),
    "the time": ("", "time.time() > 0", "`Model.forward` reads the environment, a file, a setting"),
    "grad mode": ("", "torch.is_grad_enabled()", "forward returns other values where gradients are enabled"),
    "gradients of an input": (
        "",
        "x.requires_grad",
        "forward returns other values where gradients are enabled",
    ),
    "gradients of a parameter": (
        "self.a = nn.Parameter(torch.ones(1))",
        "self.a.requires_grad",
        "forward returns other values where gradients are enabled",
    ),
    "a hidden tensor on no device": (
        "self.a = [torch.ones(1, device='meta')]",
        "len(self.a)",
        "whose elements cannot",
    ),
    "a global lock": (
        "",
        "LOCK.locked()",
        "`LOCK`, which forward reads, is a lock, whose value cannot be compared",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_named(load, name) -> None:
    init, read, message = REFUSED[name]
    top = "import os, socket, threading, time\nLOCK = threading.Lock()"
    with pytest.raises(TargetError) as caught:
        load([(Kind(init, f"float({read})", "", top), True)])
    assert message in str(caught.value)
    assert str(caught.value).endswith("; no kernel can be adopted for it.")
    if init:
        assert load([(Kind(init, f"float({read})", "", top), False)]).reason() is None


def test_two_names_of_one_tensor_are_pinned_both_ways(load) -> None:
    init = "self.a = nn.Parameter(torch.ones(2), requires_grad=False)\nself.b = {b}"
    kinds = [
        Kind(init.format(b=b), "(self.a * self.b).sum()", "")
        for b in ("self.a", "nn.Parameter(self.a.clone())")
    ]
    tied, untied = (load([(kind, True)]) for kind in kinds)
    assert tied.domain.attributes["same:b"] == "a"
    assert not any(name.startswith("same:") for name in untied.domain.attributes)
    assert tied.reason() is None and untied.reason() is None
    tied.module.b = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    untied.module.b = untied.module.a
    with torch.no_grad():
        for loaded in (tied, untied):
            assert "one object here or in the verified module" in misfit(loaded.domain, loaded.module)


def test_a_count_of_batches_is_no_state_that_matters(load) -> None:
    loaded = load([(Kind("self.a = nn.BatchNorm1d(2).eval()", "self.a(x[None])[0, 0]", ""), True)])
    loaded.module.a.num_batches_tracked += 5
    assert loaded.reason() is None


def test_an_ordinary_module_has_no_pins(load) -> None:
    init = "self.eps = 1e-6\nself.weight = nn.Parameter(torch.ones(2))\nself.act = nn.GELU()\nself.k = 3"
    loaded = load(
        [
            (
                Kind(
                    init,
                    "helper(self.act(x) * self.weight).sum() + self.eps",
                    "",
                    "def helper(x):\n    return torch.tanh(x)",
                ),
                True,
            )
        ]
    )
    assert not [name for name in loaded.domain.attributes if ":" in name]
