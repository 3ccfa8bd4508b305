"""The example as a whole decides whether kernels pay."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelllm_judge.core.records import Ratio
from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.instance import own_class, swap
from pytest_kernelllm.beside.optimize import turns, whole
from pytest_kernelllm.beside.optimize.kernel_index import KernelIndex
from pytest_kernelllm.beside.optimize.model import Replacement
from pytest_kernelllm.beside.optimize.report import ModuleReport
from pytest_kernelllm.beside.optimize.whole import gains, restored
from pytest_kernelllm.store import Store


class Slow(nn.Module):
    def forward(self, x):
        for _ in range(8):
            torch.linalg.svd(torch.ones(64, 64))
        return x


class Quick(nn.Module):
    def forward(self, x):
        return x


class Counting(nn.Module):
    """Holds a block, and counts its calls in a buffer."""

    def __init__(self, block):
        super().__init__()
        self.block = block
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.block(x)


def replaced(block, forward):
    """A model with a block whose class has another forward, and the swap."""
    model = Counting(block)
    other = own_class(type(block))
    other.forward = forward
    return model, swap("block", block, other)


def test_a_kernel_that_makes_the_example_faster_is_kept():
    model, done = replaced(Slow(), lambda self, x: x)
    gain = gains([done], model, lambda: model(torch.ones(3)))["block"]
    assert 1 < gain.low <= gain.value <= gain.high
    assert type(model.block) is done.after
    assert model.calls == 0


def test_a_kernel_that_makes_the_example_slower_is_taken_out():
    model, done = replaced(Quick(), Slow.forward)
    gain = gains([done], model, lambda: model(torch.ones(3)))["block"]
    assert gain.low < 1
    assert type(model.block) is Quick


def test_a_kernel_that_fails_in_the_example_is_taken_out_however_fast_the_rest_is():
    dispatcher = SimpleNamespace(off=None)

    def forward(self, x):
        dispatcher.off = "it raised an error"  # as a dispatcher notes; the original runs from then on
        return x

    setattr(forward, DISPATCHER, dispatcher)
    model, done = replaced(Slow(), forward)
    found = gains([done], model, lambda: model(torch.ones(3)))
    assert found == {"block": "it raised an error"}
    assert type(model.block) is Slow


def test_one_class_after_the_other_is_tried():
    good, bad = replaced(Slow(), lambda self, x: x), replaced(Quick(), Slow.forward)
    model = nn.Sequential(good[0], bad[0])
    swaps = [replace(each, path=path) for each, path in ((good[1], "0.block"), (bad[1], "1.block"))]
    found = gains(swaps, model, lambda: model(torch.ones(3)))
    assert found["0.block"].low > 1 > found["1.block"].low
    assert type(model[0].block) is good[1].after
    assert type(model[1].block) is Quick


# --------------------------------------------------------------------------- compiled


@pytest.fixture
def compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Sums(nn.Module):
    def forward(self, x):
        return x.sin() + 1


def sums_as_slowly(self, x):
    for _ in range(200):
        torch._dynamo.graph_break()  # as if nothing could be fused with it
    return x.sin() + 1


def in_compiled(model, swaps):
    x = torch.ones(3)
    return gains(swaps, model, lambda: model(x), {})


def test_kernels_that_make_the_compiled_example_slower_are_taken_out(compiler):
    model, done = replaced(Sums(), sums_as_slowly)
    gain = in_compiled(model, [done])["block"]
    assert gain.high < 1
    assert type(model.block) is Sums
    assert model.calls == 0
    assert model._compiled_call_impl is None


def test_kernels_that_make_the_compiled_example_faster_stay(compiler):
    class Slowly(nn.Module):
        forward = sums_as_slowly

    model, done = replaced(Slowly(), Sums.forward)
    assert in_compiled(model, [done])["block"].low > 1
    assert type(model.block) is done.after


def test_where_not_all_pay_together_one_class_after_the_other_is_tried(compiler):
    class Slowly(nn.Module):
        forward = sums_as_slowly

    def much_more_slowly(self, x):
        return sums_as_slowly(self, x) + 0 * sums_as_slowly(self, x) + 0 * sums_as_slowly(self, x)

    good, bad = replaced(Slowly(), Sums.forward), replaced(Sums(), much_more_slowly)
    model = nn.Sequential(good[0], bad[0])
    swaps = [replace(each, path=path) for each, path in ((good[1], "0.block"), (bad[1], "1.block"))]
    found = in_compiled(model, swaps)
    assert found["0.block"].low > 1 > found["1.block"].low
    assert type(model[0].block) is good[1].after
    assert type(model[1].block) is Sums


def test_a_compiled_example_must_be_faster_by_more_than_processes_differ(monkeypatch):
    by_little = Ratio(1.015, 1.01, 1.02)

    def gain(group, *_):
        for each in group:
            each.undo()
        return by_little

    monkeypatch.setattr(whole, "_gain", gain)
    model, done = replaced(Sums(), Sums.forward)
    assert in_compiled(model, [done]) == {"block": by_little}
    assert type(model.block) is Sums
    replacement = Replacement(KernelIndex(Store(Path("none")), None))
    replacement.swaps = [done]
    report = replacement.keep_if_faster(
        ModuleReport("block", "Sums", "kernel"), {"block": by_little}, whole.COMPILED.least
    )
    assert report.reason == "the example is not 1.02 times as fast with its kernel: 1.01x [1.01, 1.02]"
    assert not replacement.swaps

    model, done = replaced(Sums(), Sums.forward)
    assert gains([done], model, lambda: None) == {"block": by_little}
    assert type(model.block) is done.after


def test_an_example_that_fails_leaves_the_model_uncompiled():
    model, done = replaced(Sums(), Sums.forward)
    with pytest.raises(ZeroDivisionError):
        gains([done], model, lambda: 1 / 0, {})
    assert model._compiled_call_impl is None


# --------------------------------------------------------------------------- how often, and what stays


def test_what_the_first_call_compiles_costs_no_rounds(monkeypatch):
    model, done = replaced(Quick(), lambda self, x: x)
    calls = []
    clock = iter(
        float(10 * n if n < 4 else 40) for n in range(10_000)
    )  # as if the first two took ten seconds each

    def example():
        calls.append(type(model.block))

    monkeypatch.setattr(whole.time, "perf_counter", lambda: next(clock) + len(calls) * 1e-3)
    gains([done], model, example)
    assert calls[:4] == [Quick, done.after] * 2
    assert len(calls) == 4 + 2 * turns.ROUNDS


def compiled_gain(monkeypatch, cost):
    """What comes out for the compiled example where ``cost(kind, last kind, number of the call)`` is its time in seconds."""
    model, done = replaced(Quick(), lambda self, x: x)
    kinds, now = [None], [0.0]

    def example():
        kinds.append(type(model.block))
        now[0] += cost(kinds[-1], kinds[-2], len(kinds))

    monkeypatch.setattr(whole.time, "perf_counter", lambda: now[0])
    return gains([done], model, example, {})["block"]


def test_the_first_call_after_a_replacement_is_not_timed_where_it_is_compiled(monkeypatch):
    # As if only the original's code had to be looked for.
    gain = compiled_gain(
        monkeypatch, lambda kind, last, _: 5.0 if kind is not last and kind is Quick else 1.0
    )
    assert gain == Ratio(1.0, 1.0, 1.0)


def test_a_compiled_example_whose_calls_take_turns_is_judged_by_both(monkeypatch):
    def cost(kind, _, number):
        return 4.0 if kind is Quick else (12.0, 2.0)[number % 2]

    assert compiled_gain(monkeypatch, cost).value == pytest.approx(8 / 14)


class Keeping(nn.Module):
    """Replaces one buffer at each call; another one cannot be written, as its elements share memory."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", None)
        self.register_buffer("mask", torch.ones(()).expand(3))

    def forward(self, x):
        self.calls, self.last = self.calls + 1, x
        return x * self.mask


def test_buffers_that_calls_replace_are_restored():
    model = Keeping()
    kept = [id(model.calls), id(model.mask)]
    with torch.no_grad(), restored(model):
        model(torch.ones(3))
        assert model.calls == 1
    assert model.calls == 0
    assert model.last is None
    assert [id(model.calls), id(model.mask)] == kept


def test_buffers_of_a_model_that_was_made_in_inference_mode_are_restored():
    with torch.inference_mode():
        model = nn.BatchNorm1d(3)
    with restored(model), torch.inference_mode():
        model(torch.randn(8, 3))
        assert model.running_mean.any()
    assert not model.running_mean.any()
