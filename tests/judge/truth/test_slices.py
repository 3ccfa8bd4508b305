"""Large calls are compared slice by slice where rows are independent, with the same result."""

import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
from test_outputs import POLICY, of, references
from torch import nn

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.agreement import agrees
from kernelllm_judge.truth.numerics import compare
from kernelllm_judge.truth.originals import Modules
from kernelllm_judge.truth.outputs import OriginalError
from kernelllm_judge.truth.prepared import Sliced
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.weights import SIGNED

SLICED = replace(POLICY, slice_bytes=1, slice_elements=4 * 64)
"""Slices of four rows."""

SPEC = TensorSpec("float32", ("n", 64))


def prepare(target, rows=23, rule="values", **more):
    return target.prepare(Probe("default", (("n", rows),), 1, rule=rule, **more))


def parts(prepared):
    return [(rows, prepared.expected.expect(rows, True)) for rows in prepared.expected.pieces]


def passes(prepared, output):
    """Whether all rows pass; where they agree with the original's, they must pass whatever float64 gives."""
    if not isinstance(prepared.expected, Sliced):
        return compare(output, prepared.expected, 0, POLICY, None).passed
    for rows, expected in parts(prepared):
        passed = compare(output[rows], expected, 0, POLICY, None).passed
        [original] = prepared.expected.run(rows)
        assert passed or not agrees(output[rows], original, POLICY)
        if not passed:
            return False
    return True


class Positions(nn.Module):
    """Adds a number to each row by its position."""

    def forward(self, x):
        return x + torch.arange(len(x), device=x.device, dtype=x.dtype)[:, None] * 100


class Windows(nn.Module):
    """Adds each row's predecessor."""

    def forward(self, x):
        return x + torch.cat([torch.zeros_like(x[:1]), x[:-1]])


INDEPENDENT = {
    "elementwise": of(torch.relu),
    "by row": of(lambda x: x.softmax(-1)),
    "layer": lambda: nn.Linear(64, 16),
    "norm": lambda: nn.LayerNorm(64),
    "reduction": of(lambda x: x.sum(-1)),
    "indices": of(lambda x: x.argmax(-1)),
    "batch norm": lambda: nn.BatchNorm1d(64).eval(),
}

DEPENDENT = {
    "sum": of(lambda x: x.sum()),
    "column sums": of(lambda x: x.sum(0, keepdim=True)),
    "mean of all": of(lambda x: x - x.mean()),
    "mean of columns": of(lambda x: x - x.mean(0)),
    "by size": of(lambda x: x / len(x)),
    "prefix": of(lambda x: x.cumsum(0)),
    "reversed": of(lambda x: x.flip(0)),
    "transposed": of(lambda x: x.t() @ x),
    "positions": Positions,
    "neighbours": Windows,
    "first row": of(lambda x: x * x[:1]),
    "largest": of(lambda x: x / x.abs().max()),
    "last half": of(lambda x: torch.cat([x[: len(x) // 2], x[len(x) // 2 :] * len(x)])),
    "beyond ten rows": of(lambda x: x * (2.0 if len(x) > 10 else 1.0)),
}


@pytest.fixture
def sliced():
    """Makes reference outputs with small slices."""
    return partial(references, policy=SLICED)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_compared_in_slices(name, sliced):
    target = sliced(INDEPENDENT[name])
    prepared = prepare(target)
    assert isinstance(prepared.expected, Sliced)
    rows = [i for piece in prepared.expected.pieces for i in range(23)[piece]]
    assert rows == list(range(23))
    output = prepared.module(**prepared.arguments).detach()
    assert passes(prepared, output)
    [form] = prepared.expected.original
    assert (form.shape, form.stride(), form.dtype) == (output.shape, output.stride(), output.dtype)
    assert prepared.bytes == references(INDEPENDENT[name]).prepare(prepared.probe).bytes
    assert prepared.trivial is None


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_others_are_compared_together(name):
    prepared = prepare(references(DEPENDENT[name], policy=SLICED))
    assert not isinstance(prepared.expected, Sliced)
    assert passes(prepared, prepared.module(**prepared.arguments).detach())


def test_a_kernel_may_err_as_the_original_does_for_all_rows_together(sliced):
    def coarser_for_many(x):
        """Like a library that takes another algorithm for large batches."""
        return (x * 4096).round() / 4096 if x.dtype == torch.float32 and len(x) > 4 else x * 1.0

    prepared = prepare(sliced(of(coarser_for_many)))
    output = prepared.module(**prepared.arguments)
    assert passes(prepared, output)
    output[20, 3] += 2e-3
    assert not passes(prepared, output)


def test_other_weights_are_tried_with_a_slice(sliced):
    in_float64 = []

    class Watched(nn.LayerNorm):
        def forward(self, x):
            if x.dtype == torch.float64:
                in_float64.append(len(x))
            return super().forward(x)

    target = sliced(lambda: Watched(64))
    prepare(target)
    in_float64.clear()
    prepared = prepare(target, rule="weights", state=SIGNED)
    assert bool((prepared.module.weight < 0).any())
    assert max(in_float64) == 4


def test_a_wrong_element_is_found_in_any_slice_and_named_by_its_place():
    prepared = prepare(references(lambda: nn.LayerNorm(64), policy=SLICED))
    right = prepared.module(**prepared.arguments).detach()
    for row in (0, 3, 4, 22):
        wrong = right.clone()
        wrong[row, 5] += 1e-3
        found = [compare(wrong[rows], expected, 0, POLICY, None) for rows, expected in parts(prepared)]
        [failed] = [f for f in found if not f.passed]
        assert failed.detail.startswith(f"at [{row}, 5]: expected")


def test_a_second_input_is_cut_only_where_its_rows_belong_to_the_outputs():
    class Two(nn.Module):
        def forward(self, a, b):
            return a @ b

    target = references(Two, lambda n: {"a": torch.randn(64, 64), "b": torch.randn(64, 64)}, SLICED)
    target.subject.bind = lambda call: call
    prepared = prepare(target)
    assert isinstance(prepared.expected, Sliced)
    assert passes(prepared, prepared.arguments["a"] @ prepared.arguments["b"])
    wrong = prepared.arguments["b"] @ prepared.arguments["a"]
    assert not passes(prepared, wrong)


def test_zeros_do_not_hide_that_a_rows_place_matters():
    square = torch.randn(64, 64).triu()
    target = references(of(lambda x: torch.triu(x @ square)), lambda n: torch.rand(64, 64).triu(), SLICED)
    assert not isinstance(prepare(target, 64).expected, Sliced)


def test_rows_that_depend_on_others_for_some_inputs_only_are_not_decided():
    def tamed(x):
        largest = x.abs().max()
        return torch.where(largest > 100, x / largest, x)

    target = references(of(tamed), policy=SLICED)
    assert isinstance(prepare(target).expected, Sliced)
    probe = Probe("default", (("n", 23),), 2, "mixed-row", rule="stress")
    with pytest.raises(OriginalError, match="each row by itself for the inputs given, but not at"):
        target.prepare(probe)


def test_outputs_of_another_shape_for_all_rows_together_are_not_decided():
    def narrowed(x):
        return x[:, :32] if bool(x.abs().max() > 100) else x * 1

    target = references(of(narrowed), policy=SLICED)
    assert isinstance(prepare(target).expected, Sliced)
    with pytest.raises(OriginalError, match="each row by itself for the inputs given, but not at"):
        target.prepare(Probe("default", (("n", 23),), 2, "mixed-row", rule="stress"))


def test_an_output_without_elements_may_be_beside_others(sliced):
    prepared = prepare(sliced(of(lambda x: (x.relu(), x[:, :0]))))
    assert isinstance(prepared.expected, Sliced)
    assert [leaf.shape for leaf in prepared.expected.run(slice(4))] == [(4, 64), (4, 0)]


def test_stress_leaves_tensors_that_the_user_keeps_as_they_are(sliced):
    kept = torch.randn(23, 64)
    target = sliced(of(torch.tanh), lambda n: kept)
    before = kept.clone()
    prepare(target)
    target.prepare(Probe("default", (("n", 23),), 2, "×8", rule="stress"))
    assert torch.equal(kept, before)


def test_small_calls_are_compared_at_once():
    assert not isinstance(prepare(references(of(torch.relu))).expected, Sliced)


def test_a_large_product_of_small_matrices_is_compared_in_slices():
    def outer(x):
        return x[:, :1] * torch.ones(1, 64 * x.shape[1])

    few = replace(
        SLICED, slice_bytes=23 * 64 * 64
    )  # of 4 bytes each: more than the input's, fewer than the output's
    assert isinstance(prepare(references(of(outer), policy=few)).expected, Sliced)
    assert not isinstance(prepare(references(of(torch.relu), policy=few)).expected, Sliced)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_agrees_with_the_original_passes_the_comparison(dtype):
    target = references(lambda: nn.LayerNorm(64, dtype=dtype), lambda n: torch.randn(n, 64).to(dtype))
    prepared = prepare(target)
    original = prepared.expected.original[0]
    eps = torch.finfo(dtype).eps
    for factor in (0.4, 1, 7.9):
        near = original * (1 + factor * eps * torch.rand_like(original))
        assert not agrees(near, original, POLICY) or compare(near, prepared.expected, 0, POLICY, None).passed
    assert agrees(original, original, POLICY)
    assert not agrees(original * 1.1, original, POLICY)
    assert not agrees(torch.where(original > 1, torch.nan, original), original, POLICY)


def test_a_tolerance_of_the_marker_may_be_stricter_than_the_rounding_bound():
    original = torch.rand(40, 64) + 1
    near = original * (1 + 5e-7)
    assert agrees(near, original, POLICY)
    assert agrees(near, original, POLICY, tolerance=1e-3)
    assert not agrees(near, original, POLICY, tolerance=1e-7)


def test_one_copy_of_large_weights_is_alive_at_once(monkeypatch):
    monkeypatch.setattr("kernelllm_judge.truth.originals.LARGE_STATE", 1)
    alive, most = weakref.WeakSet(), []

    def perturbed(self, change):
        alive.add(module := calls.copied(self.perturbed, change))
        most.append(len(alive))
        return module

    monkeypatch.setattr(Modules, "_copied", perturbed)
    prepare(references(lambda: nn.Linear(64, 16), budget=1 << 40))
    assert len(most) >= 3 and set(most) == {1}


def test_large_weights_are_copied_for_each_use(monkeypatch):
    probes = [Probe("default", (("n", 23),), seed) for seed in (1, 2)]
    kept = references(lambda: nn.Linear(64, 16))
    usual = [kept.prepare(probe) for probe in probes]
    monkeypatch.setattr("kernelllm_judge.truth.originals.LARGE_STATE", 1)
    copied = references(lambda: nn.Linear(64, 16), budget=1 << 40)
    for probe, before in zip(probes, usual, strict=True):
        after = copied.prepare(probe)
        assert not copied._originals.with_weights(copied.subject.cases[0], probe, {}).kept
        assert torch.equal(after.expected.exact[0], before.expected.exact[0])
        assert torch.equal(after.expected.bounds[0].sensitivity, before.expected.bounds[0].sensitivity)
