"""How a whole model runs is chosen by measuring it, and what is slower or wrong is not."""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.records import Ratio
from kernelllm_judge.core.syntax import snake_case
from kernelllm_judge.target.calls import Call
from pytest_kernelllm.beside.optimize.turns import confident, in_turns, middle_half
from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.ranking.factory import Subject
from pytest_kernelllm.beside.ranking.running import explained
from pytest_kernelllm.beside.whole import decide
from pytest_kernelllm.beside.whole.answer import CHOSEN, COMPILE, EAGER, MAX_AUTOTUNE, WayAnswer
from pytest_kernelllm.beside.whole.capture import capture
from pytest_kernelllm.beside.whole.choices import ALONE, COMPILER, CUDA_GRAPHS, FREEZING, Choice, choices
from pytest_kernelllm.beside.whole.errors import Reference, floating, reference
from pytest_kernelllm.beside.whole.final import Compared, compared
from pytest_kernelllm.beside.whole.optimize import bare
from pytest_kernelllm.beside.whole.regions_file import regions_source
from pytest_kernelllm.beside.whole.select import Selection, Tried
from pytest_kernelllm.beside.whole.stage import Stage, Way


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 32)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.up(self.norm(x)), {"more": x.sum()}


class Instead(nn.Module):
    """Runs in a region's place."""

    def __init__(self, seconds=0.0, factor=1.0):
        super().__init__()
        self.seconds, self.factor = seconds, factor

    def forward(self, x0, x1, x2):
        time.sleep(self.seconds)
        return functional.layer_norm(x0, (32,), x1, x2) * self.factor


@pytest.fixture
def subject():
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = Block().eval(), torch.randn(4, 32)
    return Subject(model, lambda: model(x))


def region_of(subject):
    stage = Stage(subject, {})
    with stage.opened():
        found = capture(lambda backend: stage.run(stage.by(backend)))
    assert found.calls("linear") and not found.calls("attention")
    return next(each for each in found.regions if "LayerNorm" in each.text.name)


def selected(subject, module, most=1e-5, **kwargs):
    key = region_of(subject).text.key
    stage = Stage(subject, {key: module})
    with stage.opened():
        exact = reference(stage)
        end = kwargs.get("end", time.monotonic() + 60)
        selection = Selection(stage, stage.as_people_do(None), exact, most, end, lambda text: None)
        return selection.run([Choice("the kernel", regions=(key,)), *kwargs.get("more", ())])


def test_a_slow_kernel_is_not_kept_and_a_broken_option_says_why(subject):
    chosen = selected(subject, Instead(0.02), more=[Choice("nonsense", {"no_such_option": True})])
    slow, broken = chosen.tried
    assert not slow.kept and slow.gain.high < 1.0 and slow.reason == "the model is not surely faster with it"
    assert broken.reason.startswith("it fails: ") and "no_such_option" in broken.reason
    assert chosen.way == Way()


def test_a_kernel_whose_outputs_are_off_is_not_timed(subject):
    (wrong,) = selected(subject, Instead(factor=1.01)).tried
    assert wrong.gain is None and "more than 1.5 times that of torch.compile" in wrong.reason


def test_what_surely_pays_is_kept_and_makes_its_alternatives_needless(subject, monkeypatch):
    stage_seconds = iter(range(10**9))
    monkeypatch.setattr(Stage, "seconds", lambda self, call: 1.0 + (next(stage_seconds) % 2 == 0))
    kept = []

    def in_favour(seconds, ways, **kwargs):
        return [[2.0] * 5, [1.0] * 5]

    monkeypatch.setattr("pytest_kernelllm.beside.whole.select.in_turns", in_favour)
    chosen = selected(subject, Instead(), more=[Choice("needless", unless="the kernel")])
    kept = [each.choice.name for each in chosen.tried if each.kept]
    assert kept == ["the kernel"] and len(chosen.tried) == 1
    assert chosen.way.regions == (region_of(subject).text.key,)


def test_nothing_is_tried_after_the_end(subject):
    chosen = selected(subject, Instead(), end=time.monotonic() - 1)
    assert [each.reason for each in chosen.tried] == ["no time was left to try it"]


def test_the_model_is_as_before(subject):
    model = subject.model
    stage = Stage(subject, {})
    with stage.opened():
        stage.run(stage.compiled(Way()))
        assert model.calls > 0
    assert model.calls == 0 and model._compiled_call_impl is None


def test_errors_are_relative_to_float64(subject):
    stage = Stage(subject, {})
    with stage.opened():
        exact = reference(stage)
        assert exact.exact and len(exact.outputs) == 2 and exact.outputs[0].dtype is torch.float64
        assert 0 < exact.error(floating(stage.run(None))) < 1e-6
    outputs = tuple(each.float() for each in exact.outputs)
    assert exact.error(outputs[:1]) == float("inf")
    assert exact.error((outputs[0] * 1.5, outputs[1])) == pytest.approx(0.5)
    assert exact.error((outputs[0] * float("nan"), outputs[1])) == float("inf")


class Cache:
    def __init__(self):
        self.rows = [torch.zeros(4, 32)]


class Remembers(nn.Module):
    def __init__(self, only_float32=False):
        super().__init__()
        self.linear, self.only_float32 = nn.Linear(32, 32), only_float32

    def forward(self, x, cache):
        if self.only_float32 and x.dtype is not torch.float32:
            raise TypeError("only float32")
        cache.rows[0].copy_(self.linear(x))
        return cache.rows[0] * 2


@pytest.mark.parametrize("only_float32", [False, True])
def test_caches_are_copied_for_float64_and_a_model_that_refuses_it_is_compared_with_itself(only_float32):
    model, cache, x = Remembers(only_float32), Cache(), torch.randn(4, 32)
    stage = Stage(Subject(model, lambda: model(x, cache=cache)), {})
    with stage.opened():
        exact = reference(stage)
        assert exact.exact is not only_float32
        assert exact.why.startswith("TypeError: only float32" if only_float32 else "")
        assert bool(exact.why) is only_float32
        assert cache.rows[0].dtype is torch.float32
        assert exact.error(floating(stage.run(None))) < 1e-6


def test_the_whole_way_ends_with_all_ways_timed(subject):
    region = region_of(subject)
    stage = Stage(subject, {region.text.key: Instead(0.02)})
    said = []
    terms = decide.Terms(time.monotonic() + 60, False, False, said.append)
    with stage.opened():
        base = decide.baseline(stage, said.append)
        found = decide.decided(stage, base, {region.text.key: region.text.name}, terms)
    assert [way.name for way in found.ways] == [EAGER, COMPILE, CHOSEN]
    assert all(way.ms and way.error is not None for way in found.ways)
    assert all(way.ratio.low <= way.ratio.value <= way.ratio.high for way in found.ways[:-1])
    assert found.notes == ("max-autotune-no-cudagraphs is left out, as asked.",)
    assert "trying CUDA graphs and 1 kernel" in said
    assert region.text.key not in found.way.regions


def test_torch_compile_as_people_run_it_is_taken_where_it_is_surely_faster(subject):
    stage = Stage(subject, {})
    ways = {name: WayAnswer(name, error=1e-7) for name in (EAGER, COMPILE, MAX_AUTOTUNE, CHOSEN)}
    rounds = {EAGER: 3.0, COMPILE: 2.0, MAX_AUTOTUNE: 1.0, CHOSEN: 1.5}
    timed = Compared(ways, {name: [seconds] * 9 for name, seconds in rounds.items()})
    exact = Reference((), exact=True)
    tried = (Tried(CUDA_GRAPHS, Ratio(1.2, 1.1, 1.3), kept=True),)
    before = decide.Decision(Way(CUDA_GRAPHS.options), lambda: None, tried, timed.beside(CHOSEN), exact)
    with stage.opened():
        found = decide._never_slower(before, timed, stage, allowed=1e-6)
        assert decide._never_slower(before, timed, stage, allowed=1e-8) == before, (
            "not where it is less exact"
        )
    assert found.way.options == {"max_autotune": True, "coordinate_descent_tuning": True}
    assert not found.tried[0].kept and "max-autotune" in found.tried[0].reason
    assert [(way.name, way.ms, way.ratio.value if way.ratio else None) for way in found.ways] == [
        (EAGER, 1500.0, 3.0),
        (COMPILE, 1000.0, 2.0),
        (MAX_AUTOTUNE, 500.0, 1.0),
        (CHOSEN, 500.0, None),
    ]


def test_the_model_as_it_is_stays_where_nothing_compiled_is_faster(subject):
    stage = Stage(subject, {})
    ways = {name: WayAnswer(name, error=1e-7) for name in (EAGER, COMPILE, CHOSEN)}
    timed = Compared(ways, {name: [seconds] * 9 for name, seconds in zip(ways, (1.0, 3.0, 2.0), strict=True)})
    before = decide.Decision(Way(), lambda: None, (), timed.beside(CHOSEN), Reference((), exact=True))
    with stage.opened():
        found = decide._never_slower(before, timed, stage, allowed=1e-6)
        assert not found.way.compiled and found.ways[-1].ms == 500.0
        assert floating(stage.run(found.call))[0].shape == (4, 32)


def test_a_choice_without_kernels_takes_them_out(subject):
    stage = Stage(subject, {"a": Instead()})
    with stage.opened():
        selection = Selection(stage, lambda: None, Reference((), exact=True), 1.0, 0.0, lambda text: None)
        selection._way = selection._with(Choice("a kernel", {"x": True}, regions=("a",)))
        assert selection._way.regions == ("a",)
        assert selection._with(Choice("an option", {"y": True})).regions == ("a",)
        assert selection._with(ALONE).regions == ()


def test_ways_that_fail_say_why(subject):
    def broken(*args):
        raise RuntimeError("an illegal memory access")

    stage = Stage(subject, {})
    with stage.opened():
        timed = compared(stage, Reference((), exact=True), {EAGER: broken, CHOSEN: broken}, 1.0)
    ways = timed.beside(CHOSEN)
    assert all(way.ms is None and "an illegal memory access" in way.reason for way in ways)
    assert timed.gain(EAGER, CHOSEN) is None


def test_all_kernels_come_first_and_single_ones_last():
    names = [each.name for each in choices({"a": "A_a", "b": "B_b"}, freeze=True)]
    assert names[:3] == ["CUDA graphs and 2 kernels", ALONE.name, "2 kernels together"]
    assert names[-3:] == [FREEZING.name, "the kernel of A_a", "the kernel of B_b"]
    without = choices({}, freeze=False, calls=lambda part: part == "conv")
    assert {each.name for each in COMPILER} - {each.name for each in without} == {
        "attention by cuDNN",
        "attention by FlashAttention",
    }
    one = choices({"a": "A_a"}, freeze=False)
    assert [each.name for each in one] == [
        "CUDA graphs and 1 kernel",
        ALONE.name,
        "1 kernel",
        *(each.name for each in COMPILER),
    ]


def test_a_median_has_an_interval():
    slow, fast = [float(n) for n in range(100, 115)], [50.0] * 15
    assert confident(slow, fast) == middle_half(slow, fast) == Ratio(2.14, 2.06, 2.22)
    assert confident([2.0, 4.0, 6.0], [1.0] * 3) == Ratio(4.0, 2.0, 6.0)
    wide = confident([float(n) for n in range(41)], [1.0] * 41)
    assert (wide.low, wide.value, wide.high) == (13.0, 20.0, 27.0)


def test_ways_take_turns_in_changing_order():
    order = []

    def seconds(way):
        order.append(way)
        return 1e-4

    taken = in_turns(seconds, 3, rounds=6)
    assert [len(each) for each in taken] == [6, 6, 6]
    assert order[6:12] == [2, 1, 0, 0, 1, 2]


class Draws(nn.Module):
    """Gives an output that is the same each time, one that is not, complex numbers, and no floating one."""

    def forward(self, x):
        return x + 1, x * torch.rand(()), torch.complex(x, 2 * x), x > 0


def test_outputs_that_differ_from_call_to_call_are_left_out_of_errors():
    x = torch.randn(4, 4)
    stage = Stage(Subject(Draws(), lambda: stage.subject.model(x)), {})
    with stage.opened():
        exact = reference(stage)
        steady, changing, pairs = exact.outputs
        assert changing is None and pairs.shape == (4, 4, 2) and pairs.dtype is torch.float64
        assert exact.error(floating(stage.run(None))) < 1e-6
    assert "leave out 1 of 3 outputs, which differ from call to call" in exact.note
    off = (steady, torch.zeros(()), pairs * 1.5)
    assert exact.error(off) == pytest.approx(0.5)
    assert Reference(exact.outputs[::2], exact=True).note == ""


@pytest.mark.parametrize("grows", [False, True])
def test_where_nothing_can_be_compared_no_error_is_known(grows):
    class Grows(nn.Module):
        rows = 1

        def forward(self, x):
            self.rows += 1
            return x.new_ones(self.rows) if grows else x.argmax()

    stage = Stage(Subject(Grows(), lambda: stage.subject.model(torch.ones(3))), {})
    with stage.opened():
        exact = reference(stage)
    assert exact.error(()) is exact.error((torch.ones(2),)) is None
    assert ("differ from call to call" if grows else "returns no floating tensors") in exact.note


def test_parts_of_an_output_are_compared():
    rows = [torch.randn(3, 2), torch.randn(5, 2)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    values, *_ = floating(nested)
    torch.testing.assert_close(values, torch.cat(rows))
    (dense,) = floating({"a": torch.eye(3).to_sparse()})
    torch.testing.assert_close(dense, torch.eye(3))


def test_an_example_that_does_not_call_the_model_is_one_sentence(subject):
    part = Subject(subject.model, lambda: subject.model.norm(torch.ones(32)))
    stage = Stage(part, {})
    with stage.opened(), pytest.raises(RankError, match="never calls the Block"):
        stage.run(None)


def test_what_fails_in_the_model_names_a_line_of_its_user():
    model = nn.Linear(3, 3)
    stage = Stage(Subject(model, lambda: model(torch.ones(4))), {})
    with (
        pytest.raises(RankError, match=r"\(test_whole_choosing\.py, line \d+\)"),
        explained(),
        stage.opened(),
    ):
        stage.run(None)


class Breaks(nn.Module):
    def __init__(self, at_all=True):
        super().__init__()
        self.linear, self.at_all = nn.Linear(8, 8), at_all
        self.scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(8)).eval())

    def forward(self, x):
        x = self.linear(x).relu() + 1
        return torch.relu(x) if not self.at_all else x.exp() if x.sum() > 0 else x.sin()


def test_where_torch_compile_breaks_off_is_told():
    torch._dynamo.reset()
    notes = []
    for model in (Breaks(), Breaks(at_all=False), nn.LSTM(4, 4)):
        x = torch.randn(3, 4 if isinstance(model, nn.LSTM) else 8)
        stage = Stage(Subject(model, lambda model=model, x=x: model(x)), {})
        with stage.opened():
            notes.append(capture(lambda backend, stage=stage: stage.run(stage.by(backend))).note)
    assert "breaks the model's graph off, and regions end there: Data-dependent branching." in notes[0]
    assert notes[1] == ""
    assert "captures nothing of the model, so it has no regions: Attempted to wrap RNN" in notes[2]


def test_a_model_that_is_compiled_already_is_taken_out_of_its_wrapper():
    torch._dynamo.reset()
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    wrapped = torch.compile(model)
    assert bare(Subject(wrapped, Call((x,), {}))).model is model
    with pytest.raises(RankError, match="return the module that was given to it"):
        bare(Subject(wrapped, lambda: wrapped(x)))
    with pytest.raises(RankError, match="TorchScript"):
        bare(Subject(torch.jit.script(model), Call((x,), {})))
    plain = Subject(model, lambda: model(x))
    assert bare(plain) is plain


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x, counts):
        share = (torch.arange(4) * 7 + 5) // counts
        return self.norm(x) * share[:, None], torch.acos(x.softmax(-1)) @ x.t() + 1


def test_inputs_of_regions_are_such_that_they_compute_numbers():
    torch._dynamo.reset()
    model = Picky().eval()
    stage = Stage(Subject(model, lambda: model(torch.randn(4, 8), torch.tensor([3, 4, 5, 6]))), {})
    with stage.opened():
        found = capture(lambda backend: stage.run(stage.by(backend))).regions
    joined = next(each for each in found if "batch_norm" in each.text.forward)
    assert {joined.text.inputs[number].dtype for number in joined.positive} == {torch.int64, torch.float32}
    assert len(joined.positive) == 2 < len(joined.text.inputs), "the variance and the divisor"
    names = {"torch": torch, "nn": nn, "triton_candidate": lambda **kwargs: lambda cls: cls}
    exec(regions_source("Picky", found).replace("from kernelllm_runtime import triton_candidate", ""), names)
    for each in found:
        inputs = names[f"{snake_case(each.text.name)}_inputs"]()
        returned = names[each.text.name]()(*inputs)
        assert all(bool(tensor.isfinite().all()) for tensor in tree_leaves(returned))
