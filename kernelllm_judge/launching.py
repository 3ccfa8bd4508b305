# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Launches fork servers: one process imports torch, which takes a second, and forks all of them."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelllm_judge.isolation.isolation import Isolation, Mode
from kernelllm_judge.isolation.processes import descendants, kill_all

PASSED_VARIABLES = """
    PATH LANG LC_ALL LD_LIBRARY_PATH CUDA_HOME CUDA_VISIBLE_DEVICES VIRTUAL_ENV CC
""".split()
"""Environment variables that a worker gets; all others (tokens, proxies, CI variables) are left out."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Workers run side by side, on small tensors or on a GPU."""

QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""One hardware queue in place of eight. Drivers create contexts one after the other for all GPUs of a
machine, and one with a single queue takes half the time. Candidates may not use streams of their own, so
they need no more."""

LOG = "server.log"


class ServerFailed(RuntimeError):
    """A fork server did not start; the text says why and what to do."""


@dataclass(frozen=True)
class Launch:
    """One fork server to launch."""

    mode: Mode
    isolation: Isolation
    arch: str
    scratch: Path
    """Its working directory."""
    control: socket.socket
    """Its end of the socket to the judge."""

    def options(self) -> dict[str, object]:
        """Returns what the process needs to know of this server, as JSON."""
        environment = {
            "HOME": str(self.scratch),
            "TRITON_INTERPRET": "1" if self.mode == "interpret" else "0",
        }
        environment |= QUEUES if self.mode == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
        return {
            "mode": self.mode,
            "isolation": asdict(self.isolation),
            "arch": self.arch,
            "directory": str(self.scratch),
            "environment": environment,
            "control": self.control.fileno(),
        }


class Launched:
    """The process that several fork servers were forked from. Thread-safe."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        """Starts the process; it does not wait until the servers are ready.

        Raises:
            ServerFailed: torch, triton or numpy is not installed.
        """
        self._left = len(launches)
        self._lock = threading.Lock()
        self._log = launches[0].scratch / LOG
        environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        environment |= {"HOME": str(launches[0].scratch), "PYTHONPATH": os.pathsep.join(_import_paths())}
        environment |= {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", **ONE_THREAD}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kernelllm_judge.worker.server"),
                    json.dumps([launch.options() for launch in launches]),
                ],
                pass_fds=[launch.control.fileno() for launch in launches],
                env=environment,
                cwd=launches[0].scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def last_error(self) -> str:
        """Returns the last line that the process or a server of it printed; empty if there is none."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "")

    def leave(self) -> None:
        """Notes that one server has been closed; the last one ends the process."""
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kills the process, its servers and their workers."""
        kill_all(lambda table: descendants([self._process.pid], table))


def _import_paths() -> list[str]:
    """Returns the folders of this package and its runtime, torch, triton and numpy, for the worker's ``PYTHONPATH``."""
    paths = [str(Path(__file__).parents[1])]
    for name in ("kernelllm_runtime", "torch", "triton", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ServerFailed(f"{name} is not installed; run `pip install 'kernelllm-judge[torch]'`.")
        paths.append(str(Path(spec.origin).parents[1]))
    return list(dict.fromkeys(paths))
