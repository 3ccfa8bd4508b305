"""How slots are divided."""

import os
from collections import Counter

import pytest

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import Gpu
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.engine import PER_GPU, slots, xdist_worker

GPUS = [Gpu("H200", "570", "sm_90", f"GPU-{n}", 140 << 30) for n in range(4)]
CUDA = Environment("cuda", "H200", "570", "sm_90")


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))


def places(chosen):
    return [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in chosen]


def test_one_run_has_six_on_each_gpu():
    counted = Counter(places(slots(Settings(), CUDA, GPUS)))
    assert counted == {gpu.uuid: PER_GPU for gpu in GPUS}


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 24])
def test_workers_of_xdist_divide_them(workers):
    each = [places(slots(Settings(), CUDA, GPUS, worker=n, workers=workers)) for n in range(workers)]
    assert Counter(uuid for part in each for uuid in part) == {gpu.uuid: PER_GPU for gpu in GPUS}
    assert max(map(len, each)) - min(map(len, each)) <= 1


def test_every_worker_has_one_at_least_also_where_the_number_is_set():
    parts = [slots(Settings(workers=2), CUDA, GPUS, worker=n, workers=5) for n in range(5)]
    assert [len(part) for part in parts] == [1] * 5


def test_no_more_than_there_are_jobs_and_the_cores_are_shared():
    [one] = slots(Settings(), CUDA, GPUS, jobs=1)
    assert one.environment["OMP_NUM_THREADS"] == "64"
    assert slots(Settings(), CUDA, GPUS, worker=1, workers=4)[0].environment["OMP_NUM_THREADS"] == "2"


def test_the_part_is_known_from_xdists_variables(monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert xdist_worker() == (0, 1)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    assert xdist_worker() == (3, 4)
