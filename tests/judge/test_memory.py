"""Whether a worker's error reports too little memory, and what stays cached. The rest is tested in tests/gpu/test_small_card_on_gpu.py."""

import pytest
import torch

from kernelllm_judge.memory import OWN, CallBytes, make_room, ran_out


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        ({"type": "OutOfMemoryError", "message": "CUDA out of memory. Tried to allocate 20.00 GiB."}, True),
        ({"type": "RuntimeError", "message": "Triton Error [CUDA]: out of memory"}, True),
        ({"type": "AcceleratorError", "message": "CUDA error: out of memory"}, True),
        ({"type": "OutOfResources", "message": "out of resource: shared memory, Required: 262144"}, False),
        ({"type": "RuntimeError", "message": "CUDA error: an illegal memory access was encountered"}, False),
        ({"type": 3}, False),
        ("out of memory", False),
        (None, False),
    ],
)
def test_only_a_lack_of_memory_counts_as_one(error, memory):
    assert ran_out(error) is memory


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(("inputs", "outputs", "peak"), [(6, 6, 6), (0, 4, 4), (8, 0, 0), (1, 4, 9)])
def test_a_lease_has_room_for_what_stays_cached(inputs, outputs, peak, rows):
    """Beside a worker's call: two probes' inputs, the memory shared with the worker, and what the worker allocates."""
    gib = 1 << 30
    call = CallBytes(inputs * gib, 0, outputs * gib, peak * gib, inputs * gib, rows)
    at_once = 2 * call.inputs + call.shared + call.peak
    assert OWN + at_once + call.spare() <= call.usual()


@pytest.mark.parametrize(("inputs", "outputs", "peak"), [(6, 6, 6), (0, 4, 4), (8, 0, 8), (1, 4, 9)])
def test_timing_alone_takes_less_than_a_verdict(inputs, outputs, peak):
    """Beside the judge's call: its inputs, the memory shared with the worker, and what the worker keeps of its own call."""
    gib = 1 << 30
    call = CallBytes(inputs * gib, 0, outputs * gib, peak * gib, inputs * gib, True)
    assert OWN + 2 * call.inputs + call.outputs + 2 * call.peak <= call.to_time() < call.usual()


@pytest.mark.parametrize(("free", "cached", "emptied"), [(100, 50, False), (10, 50, True), (10, 3, False)])
def test_a_small_cache_stays_where_memory_is_short(monkeypatch, free, cached, emptied):
    gib, done = 1 << 30, []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free * gib, 140 * gib))
    monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda: (20 + cached) * gib)
    monkeypatch.setattr(torch.accelerator, "memory_allocated", lambda: 20 * gib)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: done.append(True))
    make_room(4 * gib, 4 * gib)
    assert bool(done) is emptied
