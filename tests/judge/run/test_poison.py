"""What a candidate does not write must be seen as wrong, whatever an output's dtype and shape."""

import pytest
import torch

from kernelllm_judge.run.call import poison


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.bfloat16]
)
def test_every_element_is_changed(shape, dtype):
    buffer = torch.zeros(shape, dtype=dtype)
    poison(buffer)
    assert ((buffer != 0) | buffer.isnan()).all()
