# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Launches fork servers: one process imports torch, which takes seconds on a fresh machine, and forks all of them."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelllm_judge.forking import Forked, ForkHost, HostEnded, StartedHost
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

SERVER = "kernelllm_judge.worker.server"

SHARED = (SERVER, "torch", "torch.fx.experimental.symbolic_shapes")
"""What all servers import, the last for a backward pass. Each imports Triton itself, interpreted or not."""


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
        """Returns what the process needs to know of this server, besides ``control``, as JSON."""
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
        }


class ServerHost:
    """What fork servers are forked from: a process that has imported torch. Thread-safe; starts on first use."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        """``connection`` leads to a process that another one started; where that has ended, an own one starts."""
        self._host: ForkHost | None = None if connection is None else ForkHost(connection)
        self._lock = threading.Lock()

    def connect(self) -> socket.socket:
        """Returns a connection for another process.

        Raises:
            ServerFailed: torch, triton or numpy is not installed.
            HostEnded: the process does not start.
        """
        with self._lock:
            return self._living().connect()

    def fork(self, launches: Sequence[Launch], log: int) -> Forked:
        """Forks the process of some servers, which has what they share of this process's environment.

        Raises:
            ServerFailed: torch, triton or numpy is not installed.
            HostEnded: the process does not start.
        """
        options = [launch.options() for launch in launches]
        controls = [launch.control.fileno() for launch in launches]
        environment, folder = _environment(launches[0].scratch), launches[0].scratch
        with self._lock:
            host = self._living()
            return host.fork(SERVER, options, controls, environment=environment, folder=folder, log=log)

    def last_words(self) -> str:
        """Returns what the process printed last."""
        return self._host.last_words() if self._host is not None else ""

    def close(self) -> None:
        """Ends the process, if it was started here."""
        with self._lock:
            if self._host is not None:
                self._host.close()
                self._host = None

    def _living(self) -> ForkHost:
        if self._host is not None and not self._host.lives:
            self._host.close()
            self._host = None
        if self._host is None:
            self._host = StartedHost(SHARED, _environment(Path("/")), _import_paths())
        return self._host


class Launched:
    """The process that several fork servers were forked from. Thread-safe."""

    def __init__(self, launches: Sequence[Launch], host: ServerHost) -> None:
        """Starts the process; it does not wait until the servers are ready.

        Raises:
            ServerFailed: it cannot be started; for example torch, triton or numpy is not installed.
        """
        self._left = len(launches)
        self._lock = threading.Lock()
        self._log = launches[0].scratch / LOG
        self._host = host
        try:
            with self._log.open("wb") as log:
                self._forked = host.fork(launches, log.fileno())
        except HostEnded as error:
            raise ServerFailed(f"The judge's processes cannot start: {error}") from None

    def last_error(self) -> str:
        """Returns the last line that the process or a server of it printed; empty if there is none."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        printed = next((line for line in reversed(lines) if line.strip()), "")
        return printed or ("" if self._forked.number() else self._host.last_words())

    def leave(self) -> None:
        """Notes that one server has been closed; the last one ends the process."""
        with self._lock:
            self._left -= 1
            if self._left:
                return
        if self._forked.number() and not self._forked.wait(5):
            self.kill()
            self._forked.wait()
        self._forked.close()

    def kill(self) -> None:
        """Kills the process, its servers and their workers."""
        if number := self._forked.number():
            kill_all(lambda table: descendants([number], table))


def _environment(home: Path) -> dict[str, str]:
    environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    return environment | {
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(_import_paths()),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **ONE_THREAD,
    }


def _import_paths() -> list[str]:
    """Returns the folders of this package and its runtime, torch, triton and numpy, for the worker's ``PYTHONPATH``."""
    paths = [str(Path(__file__).parents[1])]
    for name in ("kernelllm_runtime", "torch", "triton", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ServerFailed(f"{name} is not installed; run `pip install 'kernelllm-judge[torch]'`.")
        paths.append(str(Path(spec.origin).parents[1]))
    return list(dict.fromkeys(paths))
