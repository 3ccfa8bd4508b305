"""Which GPU a process uses."""

import pytest

from kernelllm_judge.environment import Gpu, equal_gpus, find_gpu, gpu_of_worker, visible_uuids

UUIDS = ["GPU-aa1", "GPU-bb2", "GPU-bb3"]


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, UUIDS),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-bb3", "GPU-aa1"]),
        ("1,-1,0", ["GPU-bb2"]),
        ("7", []),
        ("GPU-bb2, GPU-a", ["GPU-bb2", "GPU-aa1"]),
        ("GPU-b", []),
        ("0,0", ["GPU-aa1"]),
        ("MIG-c4", ["MIG-c4"]),
    ],
)
def test_a_process_sees_what_cuda_would_show_it(visible, seen):
    assert visible_uuids(UUIDS, visible) == seen


def gpu(number, name="H200"):
    return Gpu(name, "570", "sm_90", f"GPU-{number}")


def test_workers_of_xdist_take_gpus_in_turn():
    gpus = [gpu(0), gpu(1), gpu(2)]
    assert [gpu_of_worker(gpus, f"gw{n}").uuid for n in range(5)] == [
        "GPU-0",
        "GPU-1",
        "GPU-2",
        "GPU-0",
        "GPU-1",
    ]


def test_only_gpus_of_one_model_share_the_work():
    gpus = [gpu(0), gpu(1, "L4"), gpu(2)]
    assert equal_gpus(gpus) == [gpus[0], gpus[2]]
    assert equal_gpus([]) == []


def test_hidden_gpus_are_not_used(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert find_gpu() is None
