"""Which other inputs, weights and attributes the original is asked for: all that it accepts."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelllm_judge.core.records import Case, Domain
from kernelllm_judge.core.tf32 import PRODUCTS
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import calls, truth
from kernelllm_judge.truth.acceptance import Trial, Unasked
from kernelllm_judge.truth.honest import InTf32, _cut
from kernelllm_judge.truth.numerics import compare
from kernelllm_judge.truth.outputs import OriginalError, ReferenceOutputs
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.variations import OTHERS_FOR_FIXED, OTHERS_THAN_GIVEN, OUT_OF_RANGE, REPEATED
from kernelllm_judge.truth.weights import ACROSS_ONE, NEGATIVE, SIGNED, WITH_NAN, normalize


class Target:
    """A subject made of a module's constructor and a function that draws its inputs."""

    unread = ()

    def __init__(self, build, inputs):
        self.made, self.draw = build, inputs
        self.cases = (Case("default", None, Domain({}, {}), {}),)

    def case(self, name):
        return self.cases[0]

    def build(self, case, device="cpu"):
        torch.manual_seed(0)
        return self.made()

    def inputs(self, case, seed, sizes=None, device="cpu"):
        torch.manual_seed(seed)
        return self.draw()

    def bind(self, call):
        names = inspect.signature(self.made().forward).parameters
        return dict(zip(names, call, strict=True))


def module(function):
    class Made(nn.Module):
        forward = staticmethod(function)

    return Made


def ask(build, inputs, stress="", rule="stress", **more):
    references = ReferenceOutputs(Target(build, inputs), "cpu", Policy(), None)
    return references.prepare(Probe("default", (), 1, stress, rule=rule, **more))


def relu(x):
    return x.relu()


def uniform():
    return (torch.rand(8, 32),)


def test_inputs_between_0_and_1_are_made_negative_where_the_original_stays_finite():
    prepared = ask(module(relu), uniform, "low-row")
    assert bool((prepared.arguments["x"] < -1e4).any())
    assert prepared.trivial is None
    assert ask(module(relu), uniform).trivial == "`x` passed through"


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (relu, "`x` passed through"),
        (lambda x: F.leaky_relu(x), "`x` passed through"),
        (lambda x: F.hardtanh(x), "`x` passed through"),
        (lambda x: (x - 2).relu(), "zeros"),
    ],
)
def test_where_given_inputs_tell_nothing_others_are_drawn(function, given):
    assert ask(module(function), uniform).trivial == given
    assert ask(module(function), uniform, OTHERS_THAN_GIVEN, "values").trivial is None


@pytest.mark.parametrize("slice_bytes", [Policy().slice_bytes, 1])
def test_rows_are_masked_where_the_original_only_selects_what_they_are_masked_with(slice_bytes):
    """Kernels fuse products with what is subtracted from them: of the least number times a weight, its rounding is left."""

    def asked(function):
        policy = Policy(slice_bytes=slice_bytes, slice_elements=4 * 64)
        references = ReferenceOutputs(
            Target(module(function), lambda: (torch.randn(64, 64),)), "cpu", policy, None
        )
        return references.prepare(Probe("default", (), 1, "masked", rule="stress"))

    assert bool((asked(lambda x: x.softmax(-1)).arguments["x"] < -1e30).any())
    for multiplying in (
        lambda x: F.layer_norm(x, (64,)),
        lambda x: (x * 0.7).softmax(-1),
        lambda x: (x.sum(-1, keepdim=True) * x.new_tensor(0.5)).cos(),
    ):
        with pytest.raises(Unasked, match="rows are masked with"):
            asked(multiplying)


def test_inputs_that_are_drawn_instead_differ_from_each_other():
    def loss(x, y, z):
        return F.triplet_margin_loss(x, y, z)

    def inputs():
        return tuple(torch.rand(8, 32) for _ in range(3))

    drawn = ask(module(loss), inputs, OTHERS_THAN_GIVEN, "values").arguments
    assert (drawn["x"] < 0).any() and not torch.allclose(drawn["x"], drawn["y"], rtol=0.3)


def test_inputs_that_are_drawn_instead_are_no_multiple_of_normal_ones():
    built = module(lambda x: x * 2)
    given, drawn = (
        ask(built, lambda: (torch.randn(8, 32),), kind, "values").arguments["x"]
        for kind in ("", OTHERS_THAN_GIVEN)
    )
    assert abs(torch.corrcoef(torch.stack([given.flatten(), drawn.flatten()]))[0, 1]) < 0.5


def test_probabilities_that_are_drawn_instead_keep_their_sign():
    def divergence(p, q):
        return F.kl_div(p.log(), q, reduction="batchmean")

    def inputs():
        return torch.rand(4, 32).softmax(-1), torch.rand(4, 32).softmax(-1)

    drawn = ask(module(divergence), inputs, OTHERS_THAN_GIVEN, "values").arguments
    assert (drawn["p"] > 0).all() and not torch.allclose(drawn["p"].sum(-1), torch.ones(4))


def test_an_output_that_is_always_the_same_can_be_told_by_no_inputs():
    def centred(x):
        x = x.amax(1, keepdim=True)
        return F.gelu(x - x.mean(1, keepdim=True))

    assert ask(module(centred), uniform, OTHERS_THAN_GIVEN, "values").trivial == "zeros"


def test_what_would_make_the_original_nan_is_not_asked():
    with pytest.raises(Unasked, match="accepts no such inputs"):
        ask(module(lambda x: x.log()), uniform, "negative")


def test_a_probability_stays_one_while_other_inputs_are_stressed():
    def loss(x, target):
        return F.binary_cross_entropy(x.sigmoid(), target, reduction="none")

    def inputs():
        return torch.randn(8, 32), torch.rand(8, 32)

    prepared = ask(module(loss), inputs, "×8")
    assert float(prepared.arguments["x"].abs().max()) > 8
    assert 0 <= float(prepared.arguments["target"].min()) <= float(prepared.arguments["target"].max()) <= 1


def test_an_input_that_is_always_the_same_is_varied():
    def scaled(x, keep, order):
        return (x * keep)[:, order]

    def inputs():
        return torch.randn(4, 16), torch.ones(16), torch.arange(16)

    prepared = ask(module(scaled), inputs, OTHERS_FOR_FIXED, "fixed inputs")
    drawn = prepared.arguments
    assert len(drawn["keep"].unique()) == 16
    assert not torch.equal(drawn["order"], torch.arange(16))
    assert set(drawn["order"].tolist()) <= set(range(16))


def test_an_input_that_cannot_be_varied_leaves_the_case_open():
    def sliced(x, count):
        return x[:, : int(count)]

    with pytest.raises(OriginalError, match="its input `count` has the same values at every seed"):
        ask(module(sliced), lambda: (torch.randn(4, 16), torch.tensor(5)), OTHERS_FOR_FIXED, "fixed inputs")


def test_inputs_that_are_drawn_need_no_other_variation():
    with pytest.raises(Unasked) as nothing:
        ask(module(relu), uniform, OTHERS_FOR_FIXED, "fixed inputs")
    assert str(nothing.value) == ""


def test_masks_have_rows_that_are_all_true_and_all_false():
    def fill(x, mask):
        return x.masked_fill(mask, 0.0)

    def inputs():
        return torch.randn(9, 16), torch.rand(9, 16) < 0.3

    mask = ask(module(fill), inputs, REPEATED, "integer inputs").arguments["mask"]
    assert sum(bool(row.all()) for row in mask) == 3
    assert sum(not row.any() for row in mask) == 3


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, ids: ids * 3, {-1, -100, (1 << 31) + 5, -(1 << 31) - 7, (1 << 55) + 1}),
        (lambda x, ids: F.cross_entropy(x, ids, reduction="none"), {-100}),
        (lambda x, ids: x[0][ids], {-1}),
    ],
)
def test_integers_beyond_the_usual_are_those_that_the_original_accepts(function, expected):
    def inputs():
        return torch.randn(64, 20), torch.randint(0, 20, (64,))

    ids = ask(module(function), inputs, OUT_OF_RANGE, "integer inputs").arguments["ids"]
    assert {i for i in ids.tolist() if not 0 <= i < 20} == expected


def test_where_none_beyond_is_accepted_the_least_index_is_asked():
    [ids] = ask(
        lambda: nn.Embedding(20, 4), lambda: (torch.randint(5, 20, (8,)),), OUT_OF_RANGE, "integer inputs"
    ).arguments.values()
    assert sorted(set(ids.tolist()) - set(range(5, 20))) == [0]


def test_an_index_that_is_refused_is_not_asked():
    def from_one(x, ids):
        if bool((ids < 1).any()):
            raise ValueError("ids begin at 1")
        return x[0][ids - 1]

    with pytest.raises(Unasked, match="accepts no such inputs"):
        ask(
            module(from_one),
            lambda: (torch.randn(2, 20), torch.randint(1, 21, (8,))),
            OUT_OF_RANGE,
            "integer inputs",
        )


def test_weights_are_negative_zero_and_nan():
    def build():
        return nn.LayerNorm(32)

    def inputs():
        return (torch.randn(4, 32),)

    signed = ask(build, inputs, rule="weights", state=SIGNED).module.weight
    assert bool((signed < 0).any())
    assert bool((signed > 0).any())
    assert int(ask(build, inputs, rule="weights", state=WITH_NAN).module.weight.isnan().sum()) == 1


def test_nan_fills_a_whole_filter_of_a_convolution():
    def inputs():
        return (torch.randn(2, 3, 6, 6),)

    weight = ask(lambda: nn.Conv2d(3, 8, 3, padding=1), inputs, rule="weights", state=WITH_NAN).module.weight
    assert sorted(weight.isnan().sum((2, 3)).flatten().tolist()) == [0] * 23 + [9]


def test_a_variance_stays_positive_while_the_weights_change_sign():
    prepared = ask(
        lambda: nn.BatchNorm1d(16).eval(), lambda: (torch.randn(4, 16),), rule="weights", state=SIGNED
    )
    assert bool((prepared.module.running_var > 0).all())
    assert bool((prepared.module.weight < 0).any())


def deep():
    """Layers that shrink what differs between inputs, as in a network that nobody has trained yet."""
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(16)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()


def images():
    return (torch.rand(4, 8, 8, 8),)


def test_normalized_weights_let_what_differs_between_inputs_through_all_layers():
    assert ask(deep, images, rule="values").trivial == "another input's output"
    prepared = ask(deep, images, rule="values", normalized=True)
    assert prepared.trivial is None
    assert not any(part.training for part in prepared.module.modules())
    convolution, norm, _ = prepared.module[0]
    convolved = convolution(prepared.arguments["input"]).detach()
    torch.testing.assert_close(norm.running_mean, convolved.mean((0, 2, 3)))


@pytest.fixture
def in_tf32(monkeypatch):
    """Computes products as a GPU may, if PyTorch allows it."""
    run = calls.call_original

    def call_original(*arguments, **named):
        with InTf32(PRODUCTS):
            return run(*arguments, **named)

    monkeypatch.setattr(calls, "call_original", call_original)
    others = [InTf32(PRODUCTS, truncated=how) for how in (False, True)]
    monkeypatch.setattr(truth, "modes", lambda tf32: others)


def passes_for_all_samples(prepared):
    """Whether the best output that ignores which sample it is would pass."""
    [output] = prepared.expected.exact
    same = output.mean(0, keepdim=True).expand_as(output).float()
    return compare(same, prepared.expected, 0, Policy(), None).passed


def block(width):
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())


@pytest.mark.parametrize("samples", [2, 64])
def test_rounding_errors_hardly_grow_through_normalized_layers(in_tf32, samples):
    def build():
        return nn.Sequential(*(block(64) for _ in range(30)), nn.Linear(64, 32)).eval()

    prepared = ask(build, lambda: (torch.rand(samples, 64),), rule="values", normalized=True)
    assert prepared.trivial is None
    assert not passes_for_all_samples(prepared)
    variances = prepared.module[0][1].running_var
    assert 2 < float(variances.max() / variances.min()) < 3  # a kernel must read each


def test_a_module_without_weights_has_no_normalized_ones():
    with pytest.raises(Unasked, match="no normalized weights"):
        ask(nn.ReLU, lambda: (torch.randn(1, 8),), rule="values", normalized=True)


def test_a_single_row_is_normalized_over_its_elements():
    def build():
        return nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))

    prepared = ask(build, lambda: (torch.rand(1, 8),), rule="values", normalized=True)
    assert 0.5 < prepared.expected.original[0].std() < 2.0  # biases are not scaled


@pytest.mark.parametrize("state", [SIGNED, WITH_NAN])
def test_other_weights_come_on_top_of_those_that_every_probe_shares(state):
    target = ReferenceOutputs(Target(deep, images), "cpu", Policy(), None)
    probes = {"rule": "weights", "normalized": True, "weights": 1}
    first = target.prepare(Probe("default", (), 1, **probes))
    shared = target.prepare(Probe("default", (), 2, **probes))
    torch.testing.assert_close(first.module.state_dict(), shared.module.state_dict(), rtol=0, atol=0)
    other = target.prepare(Probe("default", (), 3, state=state, **probes))
    torch.testing.assert_close(first.module[0][1].running_mean, other.module[0][1].running_mean)
    weight = other.module[0][0].weight
    assert bool(weight.isnan().any() if state == WITH_NAN else (weight <= 0).any())


def test_weights_that_are_refused_stay_as_they_were():
    module, seen = nn.BatchNorm1d(8).eval(), []
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(Unasked):
        normalize(
            module, {"input": torch.randn(4, 8)}, lambda other: bool(seen.append(other.running_mean.clone()))
        )
    assert not torch.equal(seen[0], before["running_mean"])
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


class Slope(nn.Module):
    """An attribute that can be any number, and one that must lie between 0 and 1."""

    def __init__(self):
        super().__init__()
        self.slope, self.share = 0.01, 0.8

    def forward(self, x):
        return F.dropout(F.leaky_relu(x, self.slope), self.share, False)


def test_attributes_cross_one_where_the_original_accepts_it():
    def inputs():
        return (torch.randn(4, 16),)

    names = ("slope", "share")
    across = ask(Slope, inputs, rule="attributes", perturbed=names, values=ACROSS_ONE).module
    assert (across.slope, across.share) == (1.7, 0.4)
    negative = ask(Slope, inputs, rule="attributes", perturbed=names, values=NEGATIVE).module
    assert (negative.slope, negative.share) == (-0.01, 0.8)


class Held(nn.Module):
    """A part that a lambda holds, too."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(8, 8)
        part = self.part
        self.call = lambda x: part(x)

    def forward(self, x):
        return self.call(x)


def test_a_part_that_a_lambda_holds_has_the_weights_that_are_judged():
    prepared = ask(Held, lambda: (torch.randn(4, 8),), rule="values")
    expected = prepared.module.part(prepared.arguments["x"]).detach()
    torch.testing.assert_close(prepared.expected.original[0], expected)
    torch.testing.assert_close(prepared.expected.exact[0].float(), expected)


class Listed(nn.Module):
    """Keeps functions that hold parts in a list."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(8, 8)
        self.calls = [lambda x: self.part(x)]

    def forward(self, x):
        return self.calls[0](x)


def test_a_part_that_a_function_in_a_list_holds_has_the_weights_that_are_judged():
    prepared = ask(Listed, lambda: (torch.randn(4, 8),), rule="values")
    expected = prepared.module.part(prepared.arguments["x"]).detach()
    torch.testing.assert_close(prepared.expected.original[0], expected)


class Sparse(nn.Module):
    """Only few of its outputs are not 0, and these are small."""

    def __init__(self):
        super().__init__()
        self.shift, self.factor = 0.5, 2.0

    def forward(self, x):
        return (x + self.shift).clamp(max=0.0) * self.factor


@pytest.mark.parametrize("share", [1e-2, 1e-5])
def test_an_original_that_is_rough_as_it_is_may_be_as_rough_with_other_attributes(share):
    def inputs():
        x = torch.rand(1 << 10, 1 << 10)
        rare = torch.rand(x.shape) < share
        return (torch.where(rare, -0.5 - 1e-3 * x, x),)

    def rough(run):
        def running(module, arguments):
            return run(module, {name: _cut(value, 0) for name, value in arguments.items()})

        return running

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calls, "run_original", rough(calls.run_original))  # as in TF32
        changed = ask(Sparse, inputs, rule="attributes", perturbed=("factor",), values=ACROSS_ONE).module
    assert changed.factor == 0.4


def test_what_is_usual_is_what_the_original_did_with_its_own_weights():
    trial = Trial(
        layer := nn.Linear(8, 8),
        lambda module: calls.copied(module, calls.to_float64),
        {"input": torch.randn(4, 8)},
        None,
    )
    assert trial.accepts_own()
    usual = trial.usual_error
    layer.weight.data = layer.weight.data * 2
    assert trial.usual_error == usual < 0.1
