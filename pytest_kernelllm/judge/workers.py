"""Workers that have loaded a candidate, each with an arena."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pytest_kernelllm.judge.handle import WorkerDied, WorkerHandle
from pytest_kernelllm.judge.run.run import Decided, said
from pytest_kernelllm.judge.shared.buffers import Arena, Pool
from pytest_kernelllm.judge.supervisor import ForkServer


@dataclass(frozen=True)
class Workers:
    """Where workers of one kind come from."""

    server: ForkServer
    device: torch.device
    """Of their arenas."""
    seconds: float
    """That a worker may spend on its answers."""
    pool: Pool | None = None
    """Where arenas on a GPU come from."""

    @contextlib.contextmanager
    def loaded(self, source: str) -> Iterator[tuple[WorkerHandle, Arena]]:
        """A worker that has loaded a kernel module, and its arena, which closes itself when the worker is gone.

        Raises:
            Decided: the module cannot be imported, or the process failed at any time.
            supervisor.ServerFailed: no worker can be started.
        """
        arena = Arena(self.device, self.pool)
        try:
            with self.server.worker(self.seconds, arena.fd, arena.close) as worker:
                if self.device.type == "cuda":
                    # Here, where nobody holds the GPU for it: drivers make one after the other, for all GPUs of a machine.
                    make_context(worker)
                reply = worker.ask("load", source=source)
                if "error" in reply:
                    raise Decided("rejected", "load", f"it cannot be imported: {said(reply)}", "load")
                yield worker, arena
        except WorkerDied as error:
            reason = f"the candidate's process failed: {error}"
            raise Decided("rejected", "run", reason, "run") from None


def make_context(worker: WorkerHandle) -> None:
    """Have a worker make its CUDA context. The candidate is not loaded yet, so a failure is not its own.

    Raises:
        Decided: there is no context to be had.
    """
    reply = worker.ask("context")
    if "error" in reply:
        raise Decided("inconclusive", "load", f"the worker could not start CUDA: {said(reply)}")
