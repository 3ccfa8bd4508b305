"""Which NVIDIA devices a worker may open: the fake folders look like those of a driver with three GPUs."""

import os
import subprocess
import sys

import pytest

from kernelllm_judge.isolation.reachable import gpu_devices, other_gpus

INFORMATION = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t GPU-{uuid}\nBus Location: \t 0000:{bus}:00.0\nDevice Minor: \t {minor}\n"


@pytest.fixture
def driver(tmp_path):
    for bus, minor, uuid in (("04", 2, "aa"), ("05", 0, "bb"), ("06", 1, "cc")):
        folder = tmp_path / "gpus" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid=uuid, bus=bus, minor=minor))
    return tmp_path


def test_the_other_gpus_of_a_machine_are_found_by_uuid(driver) -> None:
    assert other_gpus("GPU-bb", driver) == {"nvidia1", "nvidia2"}
    assert other_gpus("GPU-aa", driver) == {"nvidia0", "nvidia1"}


@pytest.mark.parametrize("visible", ["", "0", "GPU-aa,GPU-bb", "GPU-dd", "MIG-aa"])
def test_what_names_no_single_gpu_leaves_none_out(driver, visible) -> None:
    assert other_gpus(visible, driver) == frozenset()


def test_without_a_driver_there_are_none(tmp_path) -> None:
    assert other_gpus("GPU-aa", tmp_path / "nvidia") == frozenset()


def test_other_gpus_are_left_out_and_all_that_cuda_shares_is_not(tmp_path) -> None:
    names = ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "dxg", "null")
    for name in names:
        (tmp_path / name).touch()
    kept = {entry.path for entry in gpu_devices({"nvidia1"}, tmp_path)}
    assert kept == {str(tmp_path / name) for name in names if name not in ("nvidia1", "null")}
    assert {entry.path for entry in gpu_devices(devices=tmp_path)} == kept | {str(tmp_path / "nvidia1")}


def test_a_driver_that_cannot_be_read_leaves_none_out(driver) -> None:
    [file] = driver.glob("gpus/*04*/information")
    file.write_bytes(b"GPU UUID: \xff\xfe")
    assert other_gpus("GPU-bb", driver) == frozenset()


def test_cuda_does_not_start_without_a_driver() -> None:
    script = (
        "from kernelllm_judge.worker.server import cuda_starts_here; raise SystemExit(cuda_starts_here())"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0
