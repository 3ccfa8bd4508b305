"""Where memory is scarce, large inputs are changed in parts, and what is large is recognised by fingerprints."""

import itertools

import pytest
import torch
from test_outputs import of, references
from test_slices import SCARCE, SLICED
from torch import nn

from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.fingerprint import CHUNK, fingerprint
from kernelllm_judge.truth.prepared import Sliced
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.variations import OTHERS_FOR_FIXED, OTHERS_THAN_GIVEN, OUT_OF_RANGE, REPEATED

ROWS = 24
"""Of each input, in slices of four rows."""


def target(function, inputs):
    return references(function, inputs, policy=SLICED, budget=SCARCE)


def changed(prepared, stress):
    """Returns the prepared probe's input as it is drawn, and as it is when the probe changes it."""
    given, probe = (prepared.prepare(Probe("default", (("n", ROWS),), 1, kind)) for kind in ("", stress))
    assert isinstance(given.expected, Sliced) and isinstance(probe.expected, Sliced) and probe.on_host
    [before], [after] = given.arguments.values(), probe.arguments.values()
    return before, after


def parts(tensor):
    return tensor.split(4)


def uniform(n):
    return torch.rand(n, 64)


def test_no_part_of_what_is_drawn_anew_repeats_another():
    _, after = changed(target(of(torch.relu), uniform), OTHERS_THAN_GIVEN)
    assert not any(torch.allclose(a, b, rtol=0.2) for a, b in itertools.combinations(parts(after), 2))


def test_a_part_is_drawn_anew_in_the_range_of_the_whole_input():
    def large_at_the_end(n):
        return torch.rand(n, 64) * torch.arange(1, n + 1)[:, None] ** 2

    before, after = changed(target(of(torch.relu), large_at_the_end), OTHERS_THAN_GIVEN)
    assert after[:4].abs().max() > 50 * before[:4].abs().max()


def test_an_index_that_is_always_the_same_may_name_any_row():
    def inputs(n):
        return torch.arange(n * 64).reshape(n, 64)

    before, after = changed(target(of(lambda x: x * 3), inputs), OTHERS_FOR_FIXED)
    for number, part in enumerate(parts(after)):
        beyond = (part < before[4 * number].min()) | (part > before[4 * number + 3].max())
        assert beyond.float().mean() > 0.5
        assert part.min() >= 0 and part.max() < ROWS * 64


def test_an_input_that_is_drawn_is_not_taken_for_one_that_is_always_the_same():
    with pytest.raises(Unasked):
        changed(target(of(torch.relu), uniform), OTHERS_FOR_FIXED)
    _, after = changed(target(of(lambda x: x * 3), lambda n: torch.ones(n, 64)), OTHERS_FOR_FIXED)
    assert len(after.unique()) > 1000


def test_an_input_that_differs_at_its_end_only_is_not_always_the_same():
    def inputs(n):
        return torch.cat([torch.ones(n - 1, 64), torch.rand(1, 64)])

    with pytest.raises(Unasked):
        changed(target(of(lambda x: x * 3), inputs), OTHERS_FOR_FIXED)


@pytest.mark.parametrize("kind", [REPEATED, OUT_OF_RANGE])
def test_integers_are_changed_in_every_part(kind):
    def inputs(n):
        return torch.randint(0, 50, (n, 64)).where(torch.arange(n)[:, None] > 4, 7)

    before, after = changed(target(of(lambda x: x * 3), inputs), kind)
    assert all((a != b).any() for a, b in zip(parts(before), parts(after), strict=True))
    if kind == REPEATED:
        assert {0, 49} <= set(after[:4].unique().tolist()) or after[:4].max() > 7


def test_the_original_is_tried_with_a_few_rows():
    tried = []

    class Watched(nn.Module):
        def forward(self, x):
            tried.append(len(x))
            return x.relu()

    prepared = target(Watched, uniform)
    prepared.prepare(Probe("default", (("n", ROWS),), 1))
    tried.clear()
    prepared.prepare(Probe("default", (("n", ROWS),), 1, OTHERS_THAN_GIVEN))
    assert tried and max(tried) == 4


def test_rows_that_depend_on_each_other_are_changed_in_parts_too():
    prepared = target(of(lambda x: x - x.mean(0)), uniform)
    given, probe = (
        prepared.prepare(Probe("default", (("n", ROWS),), 1, kind)) for kind in ("", OTHERS_THAN_GIVEN)
    )
    [before], [after] = given.arguments.values(), probe.arguments.values()
    assert before.min() >= 0 > after.min()
    assert not any(torch.allclose(a, b, rtol=0.2) for a, b in itertools.combinations(parts(after), 2))
    expected = after - after.mean(0)
    for piece in probe.expected.pieces:
        [rows] = probe.expected.run(piece.rows)
        torch.testing.assert_close(rows, expected[piece.rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_other_bytes_have_another_fingerprint(dtype):
    tensor = torch.randn(3, 50).mul(9).ceil().clamp_min(0).to(dtype)
    mark = fingerprint(tensor, 5)
    assert mark == fingerprint(tensor.clone(), 5)
    assert mark != fingerprint(tensor, 6)
    for place in (0, 7, 149):
        other = tensor.clone().reshape(-1)
        other[place] = ~other[place] if dtype == torch.bool else -other[place] + (other[place] == 0)
        assert fingerprint(other, 5) != mark
    assert fingerprint(tensor.flip(1), 5) != mark


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128])
def test_a_single_element_of_a_column_has_a_fingerprint(dtype):
    column = torch.ones(1, 5).to(dtype)[:, 0]
    assert column.stride() == (5,)
    assert fingerprint(column, 5) == fingerprint(column.clone(memory_format=torch.contiguous_format), 5)


def test_two_changes_of_the_highest_bit_do_not_cancel():
    tensor = torch.ones(CHUNK + 3)
    other = tensor.clone()
    other[[5, 9, CHUNK, CHUNK + 1]] *= -1
    first, second = fingerprint(tensor, 1), fingerprint(other, 1)
    assert first[0] != second[0] and first[1] != second[1]
