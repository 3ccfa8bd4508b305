"""``torch.compile`` of originals: nobody waits while one compiles."""

import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch._inductor
from torch import nn
from torch._inductor.graph import GraphLowering

from kernelllm_judge.core.records import Case, Domain
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.gradients import forms_of_gradients
from kernelllm_judge.truth.outputs import ReferenceOutputs
from kernelllm_judge.truth.probes import Probe


class TwoGraphs(nn.Module):
    def forward(self, x):
        doubled = (x + x).relu()
        torch._dynamo.graph_break()
        return doubled.sin() - 1


class Activated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 8)

    def forward(self, x):
        return self.linear(x).tanh()


class Target:
    unread = ()

    def __init__(self, module):
        self.module = module
        self.cases = (Case("default", None, Domain({}, {}), {"n": 6}),)

    def case(self, name):
        return self.cases[0]

    def build(self, case, device="cpu"):
        return self.module

    def inputs(self, case, seed, sizes=None, device="cpu"):
        return torch.randn({**case.sizes, **(sizes or {})}["n"], 64)

    def bind(self, call):
        return {"x": call}


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def prepared_for(module, n=6):
    references = ReferenceOutputs(Target(module), "cpu", Policy(), None)
    return references.compiled, references.prepare(Probe("default", (("n", n),), 1))


@pytest.fixture
def events(monkeypatch):
    """What happened in which order: the real compiler runs, and is noted."""
    noted = []
    compile_graph = torch._inductor.compile

    def compiling(*args, **kwargs):
        noted.append("compiles")
        return compile_graph(*args, **kwargs)

    monkeypatch.setattr(torch._inductor, "compile", compiling)
    return noted


def sharing(noted):
    @contextlib.contextmanager
    def held():
        noted.append("holds the GPU")
        try:
            yield
        finally:
            noted.append("lets it go")

    return held


def test_the_gpu_is_held_while_a_graph_runs_and_not_while_one_is_compiled(events):
    compiled, prepared = prepared_for(TwoGraphs())
    compiled.compile(prepared, sharing(events))
    held = ["holds the GPU", "lets it go"]
    assert events == [*held, "compiles", *held, "compiles", *held]


def test_the_gpu_is_not_held_while_a_single_graph_is_traced(events):
    compiled, prepared = prepared_for(Activated())
    assert compiled.compile(prepared, sharing(events)) is not None
    assert events == ["compiles", "holds the GPU", "lets it go"]


class EagerFirst(nn.Module):
    """What comes before and after its graph is not compiled; notes where it runs as it is."""

    def __init__(self, events):
        super().__init__()
        self.note = torch.compiler.disable(lambda: events.append("runs as it is"))

    def forward(self, x):
        self.note()
        doubled = (x + x).relu()
        torch._dynamo.graph_break()
        if not torch.compiler.is_compiling():
            self.note()
        return doubled.sin() - 1


def test_what_is_several_graphs_is_held_and_compiled_at_every_size_and_again(events):
    for sizes in ((6, 9, 12), (6, 12)):
        references = ReferenceOutputs(Target(EagerFirst(events)), "cpu", Policy(), None)
        for n in sizes:
            prepared = references.prepare(Probe("default", (("n", n),), 1))
            del events[:]
            call = references.compiled.compile(prepared, sharing(events))
            assert events[0] == "holds the GPU"
            assert events.count("runs as it is") == 1
            del events[:]
            with torch.no_grad():
                call(**prepared.arguments)
            assert events == ["runs as it is"]


def test_what_is_never_compiled_runs_while_the_gpu_is_held_from_then_on(events):
    class Disabled(nn.Module):
        @torch.compiler.disable
        def forward(self, x):
            return x + 1

    compiled, prepared = prepared_for(Disabled())
    compiled.compile(prepared, sharing(events))
    del events[:]
    again, prepared = prepared_for(Disabled())
    again.compile(prepared, sharing(events))
    assert events == ["holds the GPU", "lets it go"]


def test_the_gpu_is_not_held_while_a_backward_pass_is_compiled(monkeypatch):
    held, noted, codegen = [], [], GraphLowering.codegen

    @contextlib.contextmanager
    def hold():
        held.append(True)
        yield
        held.pop()

    def compiling(lowering, *args, **kwargs):
        noted.append(("backward" if lowering.is_backward else "forward", bool(held)))
        return codegen(lowering, *args, **kwargs)

    monkeypatch.setattr(GraphLowering, "codegen", compiling)
    compiled, prepared = prepared_for(Activated())
    gradients = forms_of_gradients(prepared.module, prepared.arguments, 1)
    with torch._inductor.config.patch(force_disable_caches=True):
        both = compiled.compile(prepared, hold, gradients)
    assert noted == [("forward", False), ("backward", False)]
    assert both is not compiled.compile(prepared, hold)


def test_a_later_call_holds_nothing_even_if_it_compiles_anew(events):
    compiled, prepared = prepared_for(TwoGraphs())
    call = compiled.compile(prepared, sharing(events))
    del events[:]
    x = torch.randn(7, 64)
    torch.testing.assert_close(call(x), TwoGraphs()(x))
    assert set(events) == {"compiles"}


def test_a_later_call_may_need_several_graphs(events):
    class Either(nn.Module):
        def forward(self, x):
            return TwoGraphs.forward(self, x) if len(x) > 6 else x.sin()

    compiled, prepared = prepared_for(Either())
    call = compiled.compile(prepared, sharing(events))
    assert events == ["compiles", "holds the GPU", "lets it go"]
    x = torch.randn(7, 64)
    torch.testing.assert_close(call(x), TwoGraphs()(x))


def test_an_original_that_does_not_compile_has_no_baseline_and_keeps_nothing(events, monkeypatch):
    compile_graph, failing = torch._inductor.compile, [False, True]

    def compiling(graph, inputs):
        if failing.pop(0):
            raise NotImplementedError
        return compile_graph(graph, inputs)

    monkeypatch.setattr(torch._inductor, "compile", compiling)
    compiled, prepared = prepared_for(TwoGraphs())
    assert compiled.compile(prepared, sharing(events)) is None
    assert events.count("holds the GPU") == events.count("lets it go") == 2


def test_an_original_is_compiled_once_for_its_sizes(events):
    compiled, prepared = prepared_for(TwoGraphs())
    for _ in range(2):
        compiled.compile(prepared, sharing(events))
    assert events.count("compiles") == 2


def test_what_was_compiled_for_a_class_runs_for_its_other_targets(events):
    for _ in range(10):  # as many as PyTorch would not compile anew
        compiled, prepared = prepared_for(TwoGraphs())
        assert compiled.compile(prepared, sharing(events)) is not None
    assert events.count("compiles") == 2


def test_a_baseline_is_at_hand_while_another_one_is_compiled():
    compiled, prepared = prepared_for(TwoGraphs())
    first = compiled.compile(prepared, contextlib.nullcontext)
    running, done = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def busy():
        running.set()
        assert done.wait(60)
        yield

    other = dataclasses.replace(prepared, probe=Probe("default", (("n", 7),), 1))
    with ThreadPoolExecutor(1) as pool:
        compiling = pool.submit(compiled.compile, other, busy)
        assert running.wait(60)
        assert compiled.compile(prepared, contextlib.nullcontext) is first
        done.set()
        assert compiling.result(60) is not None


def test_nobody_who_waits_for_the_gpu_keeps_others_from_compiling():
    compiled, prepared = prepared_for(TwoGraphs())
    entered = []

    @contextlib.contextmanager
    def hold():
        entered.append(True)
        if len(entered) == 2:  # its first graph is compiled
            other, probe = prepared_for(Activated())
            with ThreadPoolExecutor(1) as pool:
                waited = pool.submit(other.compile, probe, contextlib.nullcontext)
                assert waited.result(60) is not None
        yield

    assert compiled.compile(prepared, hold) is not None
    assert len(entered) == 3
