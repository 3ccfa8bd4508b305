"""Whether a worker's error reports too little memory. Whether memory was scarce is tested in tests/gpu/test_small_card_on_gpu.py."""

import pytest

from pytest_kernelllm.judge.memory import ran_out


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
