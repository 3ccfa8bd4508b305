"""Shared buffers: between guard zones, moved on request, described as a caller would notice."""

import pytest
import torch

from kernelllm_judge.shared import leaves
from kernelllm_judge.shared.buffers import ALIGNMENT, GUARD, Allocator, buffer_bytes


@pytest.fixture
def allocator():
    allocator = Allocator(torch.device("cpu"))
    yield allocator
    allocator.close()


def layout(allocator, shift=0):
    allocator.reserve(buffer_bytes((3,), torch.float32) + buffer_bytes((2, 2), torch.float64), shift)
    return [allocator.buffer((3,), torch.float32)[0], allocator.buffer((2, 2), torch.float64)[0]]


def test_buffers_can_be_filled_without_touching_a_guard_zone(allocator):
    for buffer in layout(allocator):
        buffer.fill_(0.0)
    assert allocator.intact()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("element", ["before", "behind", "far behind"])
def test_a_write_beyond_either_end_is_seen(allocator, which, element):
    buffer = layout(allocator)[which]
    beyond = {
        "before": -1,
        "behind": buffer.numel(),
        "far behind": buffer.numel() + (GUARD - ALIGNMENT) // buffer.itemsize,
    }
    buffer.as_strided((1,), (1,), buffer.storage_offset() + beyond[element]).fill_(0.0)
    assert not allocator.intact()


def test_a_read_beyond_the_end_gives_nan(allocator):
    buffer = layout(allocator)[0]
    buffer.fill_(1.0)
    assert bool(buffer.as_strided((4,), (1,)).sum().isnan())


def test_a_shift_moves_every_buffer(allocator):
    before = [buffer.data_ptr() for buffer in layout(allocator, 8 * ALIGNMENT)]
    after = [buffer.data_ptr() for buffer in layout(allocator)]
    assert [a - b for a, b in zip(before, after, strict=True)] == [8 * ALIGNMENT] * 2


def test_outputs_are_described_as_a_caller_would_notice():
    class Lazy(torch.Tensor):
        pass

    assert leaves.describe(torch.zeros(2, 1, 3).transpose(0, 1)) == {
        "type": "Tensor",
        "dtype": "float32",
        "shape": [1, 2, 3],
        "strides": [0, 3, 1],
        "device": "cpu",
    }
    assert leaves.describe(torch.zeros(2).as_subclass(Lazy))["type"].endswith("Lazy")
    assert leaves.describe(3.0) == {"type": "float"}


def test_shared_memory_is_found_between_outputs_and_with_inputs():
    x, y = torch.zeros(10), torch.zeros(10)
    outputs = [x[5:], torch.zeros(10), y[:4], y[3:]]
    assert leaves.shared(outputs, {"x": x, "y": y, "n": 3}) == [
        ["output 2", "output 3"],
        ["x", "output 0"],
        ["y", "output 2"],
        ["y", "output 3"],
    ]
