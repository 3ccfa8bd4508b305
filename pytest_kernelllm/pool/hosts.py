"""What the processes of a pool are forked from, so that all of them together import torch and Inductor once."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.forking import Forked, HostEnded, StartedHost
from kernelllm_judge.launching import ServerHost
from pytest_kernelllm.store.signing import VARIABLE as STORE_KEY

QUIET = {
    "TORCH_WARM_POOL": "0",  # Inductor starts no processes when it is imported
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # whether there is a GPU is found out without CUDA, which does not survive a fork
    "OPENBLAS_NUM_THREADS": "1",
}
"""The process that forks has one thread and no GPU."""


class Hosts:
    """Two processes: one forks the pool's, the other, which has no secrets in its memory, the fork servers of their workers.

    Thread-safe; starts on first use.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        """``modules`` are what the pool's processes import."""
        self._modules = tuple(modules)
        self._servers = ServerHost()
        self._host: StartedHost | None = None
        self._lock = threading.Lock()
        self._closed = False

    def fork(self, module: str, channel: int, environment: dict[str, str], log: int) -> Forked:
        """Has a process forked that calls ``main(asked, (channel, connection to the servers' host))`` of a module.

        ``asked`` is when this was called, in seconds since the epoch.

        Args:
            environment: variables that differ from this process's.

        Raises:
            HostEnded: nothing can be forked.
            launching.ServerFailed: torch, triton or numpy is not installed.
        """
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  # "" is the working directory
        # They run references and store nothing, so they get no key to the store.
        own = {**os.environ, **environment, STORE_KEY: "", "PYTHONPATH": os.pathsep.join(path)}
        with self._lock:
            if self._closed:
                raise HostEnded("the pool is closed")
            if self._host is not None and not self._host.lives:
                self._host.close()
                self._host = None
            if self._host is None:
                self._host = StartedHost(self._modules, own | QUIET, path)
            with self._servers.connect() as servers:
                return self._host.fork(
                    module,
                    time.time(),
                    [channel, servers.fileno()],
                    environment=own,
                    folder=Path.cwd(),
                    log=log,
                    path=path,
                )

    def close(self) -> None:
        """Ends both. What is still to be forked is not."""
        with self._lock:
            self._closed = True
            if self._host is not None:
                self._host.close()
            self._servers.close()
