"""The attacks of tests/judge/test_isolation.py from a worker that holds a CUDA context, and CUDA under every measure."""

import ctypes
from dataclasses import replace

import pytest
import torch
from attacks import CALLS, FILES, FORWARD, attempt, need, set_stage

from kernelllm_judge.environment import find_gpus
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.isolation.reachable import other_gpus
from kernelllm_judge.supervisor import ForkServer

CONTEXT = "import torch\ntorch.zeros(1, device='cuda')\n"

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def double(p, n: tl.constexpr):
    o = tl.arange(0, n)
    tl.store(p + o, 2 * tl.load(p + o))
"""

SHARED = """
torch.cuda.init()  # opening a handle before that is a segmentation fault
storage = torch.UntypedStorage._new_shared_cuda(*{handle!r})
x = torch.empty(0, dtype=torch.float32, device='cuda').set_(storage, {offset}, (64,))
double[(1,)](x, 64)
torch.cuda.synchronize()
del x, storage
"""


@pytest.fixture(scope="module")
def stage():
    with set_stage() as stage:
        yield stage


@pytest.fixture(scope="module")
def server():
    server = ForkServer("cuda", probe_isolation("cuda"))
    yield server
    server.close()


def double_in_a_worker(server):
    """A tensor of ones that a worker's kernel has doubled in place, through shared memory."""
    x = torch.ones(64, device="cuda")
    handle = x.untyped_storage()._share_cuda_()
    torch.cuda.synchronize()
    source = KERNEL + SHARED.format(handle=tuple(handle), offset=x.storage_offset())
    with server.worker(60.0) as worker:
        assert worker.request("load", source=source + FORWARD) == {"ok": True}
    return x.cpu()


@pytest.mark.parametrize("name", FILES)
def test_a_worker_cannot_reach_a_file(server, stage, name):
    need(files=True)
    error = attempt(server, stage, CONTEXT + FILES[name])
    assert error is not None, "it succeeded"
    assert "[Errno " in error["message"], error
    assert (stage.home / ".netrc").read_text() == "password"


@pytest.mark.parametrize("name", CALLS)
def test_a_worker_cannot_call(server, stage, name):
    need(files=True, calls=True)
    here = ctypes.create_string_buffer(8)
    error = attempt(server, stage, CONTEXT + CALLS[name], ctypes.addressof(here))
    assert error is not None, "it succeeded"
    assert "[Errno " in error["message"], error
    assert not stage.received


@pytest.mark.parametrize(
    "without",
    [
        {},
        {"unshare": 0},
        {"landlock": 0},
        {"seccomp": False},
        {"capabilities": False},
        {"landlock": 0, "seccomp": False, "capabilities": False},
    ],
    ids=lambda without: f"without {', '.join(without) or 'nothing'}",
)
def test_kernels_run_on_shared_memory_under_every_measure(without):
    server = ForkServer("cuda", replace(probe_isolation("cuda"), **without))
    try:
        assert double_in_a_worker(server).eq(2).all()
    finally:
        server.close()


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two GPUs")
def test_a_worker_opens_no_gpu_but_its_own(stage, monkeypatch):
    need(files=True)
    gpu = find_gpus()[torch.cuda.current_device()]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu.uuid)
    server = ForkServer("cuda", probe_isolation("cuda"))
    try:
        for name in other_gpus(gpu.uuid):
            error = attempt(server, stage, f"{CONTEXT}open('/dev/{name}')\n")
            assert error is not None
            assert "[Errno 13] " in error["message"], error
        assert double_in_a_worker(server).eq(2).all()
    finally:
        server.close()


def test_another_gpu_worker_follows_one_that_was_ended(server):
    with server.worker(60.0) as worker:
        assert worker.request("load", source=CONTEXT + FORWARD) == {"ok": True}
    assert double_in_a_worker(server).eq(2).all()


def test_the_level_is_full_where_the_kernel_offers_it(server):
    need(files=True, calls=True)
    assert server.isolation.at_least("strict").level.startswith("full: ")
