"""What is asked of the accelerator, where there is none: nothing is initialised, and nothing fails."""

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.seeding import seed_torch


def test_devices_are_told_apart() -> None:
    assert accelerator.is_gpu("cuda:1") and accelerator.is_gpu(torch.device("xpu", 0))
    assert not accelerator.is_gpu("cpu") and not accelerator.is_gpu(torch.device("meta"))


def test_without_a_gpu_it_is_not_in_use() -> None:
    if torch.accelerator.is_available():
        return  # tests/gpu has the other half
    assert accelerator.gpu() == torch.device("cuda", 0)
    assert not accelerator.in_use() and not accelerator.is_capturing()
    assert accelerator.random_state() is None


def test_seeding_is_that_of_torch() -> None:
    seed_torch(7)
    first = torch.rand(3)
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(7)))
