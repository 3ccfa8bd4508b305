"""Large outputs are recognised by fingerprints."""

import pytest
import torch

from kernelllm_judge.truth.fingerprint import CHUNK, fingerprints


def fingerprint(tensor, seed):
    return fingerprints([tensor], seed)[0]


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
