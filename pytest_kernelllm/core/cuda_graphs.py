"""Records CUDA graphs, and leaves CUDA as it was where that fails."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Literal

import torch


@contextlib.contextmanager
def capture(
    graph: torch.cuda.CUDAGraph, errors: Literal["global", "thread_local"] = "global"
) -> Iterator[None]:
    """Works as ``torch.cuda.graph``, for the current device. The work inside must have run before, on a side stream.

    When the work inside cannot be recorded, ``CUDAGraph.capture_end`` raises and leaves the rest undone: the side stream
    stays the current one, the allocator goes on filling the graph's pool (which ends the process when that is freed), and
    the generator of random numbers may be left recording. All three are put right here.

    Python collects no garbage meanwhile: an old graph among it would free its memory, which CUDA forbids while it records.

    cuBLAS gets new workspaces, in the graph's own pool, and again afterwards. PyTorch keeps one for each stream, which for all
    recordings is the same: a second graph would use the one in the first graph's pool, which is gone with that graph as soon
    as anybody asks PyTorch to clear workspaces, as ``torch.compile(mode="reduce-overhead")`` does.

    Args:
        graph: what to record into.
        errors: ``thread_local`` lets other threads go on using CUDA meanwhile.
    """
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    pool = torch.cuda.graph_pool_handle()
    try:
        with (
            _own_workspaces(),
            _no_garbage_collection(),
            torch.cuda.graph(graph, pool=pool, capture_error_mode=errors),
        ):
            yield
    except BaseException:
        torch.cuda.set_stream(stream)
        with contextlib.suppress(RuntimeError):  # the end of the recording was not what failed
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(generator.clone_state())
        raise


@contextlib.contextmanager
def _own_workspaces() -> Iterator[None]:
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def warm_up(work: Callable[[], object], times: int) -> None:
    """Runs some work several times on a side stream, so that what it does only once (compile, choose, allocate) is not recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(side)
