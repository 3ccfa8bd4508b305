"""Opens workers that have loaded a candidate, each with buffers that it shares with the judge."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.findings import (
    Decision,
    Durations,
    Findings,
    OutOfMemory,
    OutOfTime,
    WorkerKilled,
    WorkerNotReady,
)
from kernelllm_judge.handle import WorkerDied, WorkerHandle
from kernelllm_judge.leases import EVERYTHING, Lease
from kernelllm_judge.memory import WORKER_SHARE, ran_out
from kernelllm_judge.run.call import Judging, error_text
from kernelllm_judge.shared.buffers import Allocator, GpuBlockPool
from kernelllm_judge.supervisor import ForkServer
from kernelllm_judge.truth.outputs import ReferenceOutputs

COMPILED = re.compile(r"^[ \t]*@(?:\w+\.)*jit\b", re.MULTILINE)
"""The decorator of what Triton compiles."""

KERNELS = 30
"""Kernels for which a worker's seconds are meant. It gets as much again for as many more, because Triton compiles each, often for
several constants, when it is first launched: a deep network has hundreds…"""

LONGEST = 10
"""…but no more than so many times its seconds."""


def _unlocked(durations: Durations) -> contextlib.AbstractContextManager[None]:
    """Does nothing, where there is no GPU to be released."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Workers:
    """Opens workers of one kind: on a GPU, in Triton's interpreter, or for compilation only."""

    server: ForkServer
    device: torch.device
    """Device of the shared buffers."""
    seconds: float
    """Seconds that all replies of a worker may take together, for a module of a few kernels."""
    pool: GpuBlockPool | None = None
    """Allocates shared memory on a GPU; None on a CPU."""
    released: Callable[[Durations], contextlib.AbstractContextManager[None]] = _unlocked
    """Returns a context in which others may have the GPU, and which notes the wait at its end."""

    @contextlib.contextmanager
    def loaded(
        self, source: str, references: ReferenceOutputs, findings: Findings, lease: Lease = EVERYTHING
    ) -> Iterator[Judging]:
        """Opens a worker that has loaded a kernel module. Its buffers are freed when its process has ended.

        Args:
            findings: get what goes wrong.
            lease: the GPU memory that the worker may take; without a budget half of the GPU's.

        Raises:
            OutOfTime: the worker missed its deadline.
            WorkerKilled: a signal ended it.
            WorkerNotReady: it ended before the candidate was loaded.
            Decision: the module cannot be imported, or the worker process failed at any time.
            launching.ServerFailed: no worker can be started.
        """
        allocator = Allocator(self.device, self.pool)
        seconds = self.seconds * min(1 + len(COMPILED.findall(source)) / KERNELS, LONGEST)
        released = functools.partial(self.released, findings.durations)
        with contextlib.ExitStack() as opened:
            with findings.durations.part("starting a worker"):  # or waiting until its server is ready
                server = self.server.worker(seconds, allocator.fd, allocator.close, released)
                worker = opened.enter_context(server)
                opened.enter_context(_decided(worker, findings))
                try:
                    # Before the GPU is locked: drivers create contexts one after the other, for all GPUs
                    # of a machine.
                    make_ready(worker, self._memory_share(lease.worker))
                except WorkerDied as error:
                    if error.hung:
                        raise
                    raise WorkerNotReady(str(error)) from None
                reply = worker.request("load", source=source)
            if "error" in reply:
                reason = f"it cannot be imported: {error_text(reply)}"
                raise Decision("rejected", "load", reason, "load")
            rng = random.Random(secrets.randbits(64))
            yield Judging(worker, allocator, references, findings, rng, lease)

    def _memory_share(self, memory: int | None) -> float:
        """Returns the share of the GPU's memory that a worker may allocate; 0 without a GPU."""
        if not accelerator.is_gpu(self.device):
            return 0.0
        total = accelerator.total_bytes()
        return WORKER_SHARE if memory is None else min(1.0, memory / total)


@contextlib.contextmanager
def _decided(worker: WorkerHandle, findings: Findings) -> Iterator[None]:
    """Turns a worker's end into a decision, and notes with each decision at which probe it fell, and whether the disk was full."""
    try:
        try:
            yield
        except WorkerDied as error:
            reason = f"the candidate's process failed: {error}"
            if error.hung:
                raise OutOfTime(reason) from None
            if error.killed:
                raise WorkerKilled(reason) from None
            raise Decision("rejected", "run", reason, "run") from None
    except Decision as end:
        if end.on_full_disk is None:  # it may be that of a worker beside this one
            end.on_full_disk = worker.on_full_disk()
            end.probe = findings.probe
        raise


def make_ready(worker: WorkerHandle, memory_share: float) -> None:
    """Has a worker create its CUDA context, if it has a GPU. The candidate is not loaded yet, so it cannot be at fault.

    Raises:
        OutOfMemory: too little memory was free for its context.
        Decision: the context cannot be created.
        WorkerDied: the worker process ended.
    """
    reply = worker.request("ready", memory_share=memory_share)
    if ran_out(reply.get("error")):
        raise OutOfMemory("for a worker's CUDA context")
    if "error" in reply:
        raise Decision("inconclusive", "load", f"the worker could not start CUDA: {error_text(reply)}")
