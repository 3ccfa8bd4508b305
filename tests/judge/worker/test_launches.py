"""A worker holds no memory of a call that has ended."""

import weakref

import torch

from kernelllm_judge.shared.watch import OperationWatch
from kernelllm_judge.worker.launches import LaunchRecorder


def test_memory_that_was_guarded_in_a_call_is_free_afterwards():
    launches, watch = LaunchRecorder(), OperationWatch()
    with launches.watched(watch):
        torch.empty(1 << 10)
    assert watch.broken_guards() == []
    gone = weakref.ref(watch)
    del watch
    assert gone() is None
