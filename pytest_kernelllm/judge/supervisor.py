"""The judge's hold on its workers: starts fork servers, opens workers with a deadline, ends them with all their children."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_kernelllm.judge.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout

Mode = Literal["interpret", "compile", "cuda"]

START_TIMEOUT = 120.0
"""Seconds a fork server may take to import torch and triton, on a cold disk too."""

GIB = 1024**3

PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "VIRTUAL_ENV",
    "CC",
)
"""Environment variables a worker sees; everything else (tokens, proxies, CI variables) is left out."""


class WorkerDied(Exception):
    """A worker ended, hung or spoke nonsense; the text says which, for people."""

    def __init__(self, text: str, *, hung: bool = False) -> None:
        """``hung``: it ran into the deadline."""
        super().__init__(text)
        self.hung = hung


class ServerFailed(RuntimeError):
    """A fork server did not start; the text says why and what to do."""


CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Isolation:
    """What holds a worker in this environment, as reported in records."""

    unshare: int
    """Flags of ``unshare(2)`` that give a worker a network of its own with nothing in it; 0: not possible here."""

    @property
    def level(self) -> str:
        """One line: the measures in force."""
        parts = ["own process group", "clean environment", "resource limits"]
        return ", ".join([*parts, "no network"] if self.unshare else parts)


def _import_paths() -> list[str]:
    """Where this package, torch and triton are found, wherever the judge's own path came from."""
    paths = [str(Path(__file__).parents[2])]
    for name in ("torch", "triton", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ServerFailed(f"{name} is not installed; run `pip install 'pytest-kernelllm[torch]'`.")
        paths.append(str(Path(spec.origin).parents[1]))
    return list(dict.fromkeys(paths))


def probe_isolation(mode: Mode) -> Isolation:
    """Find out what this machine allows.

    Without root a network namespace needs a user namespace, across which CUDA's shared memory does not open: GPU
    workers then keep the host's network.
    """
    for flags in (CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET)[: 1 if mode == "cuda" else 2]:
        script = f"import ctypes,sys; sys.exit(ctypes.CDLL(None).unshare({flags}) != 0)"
        tried = subprocess.run([sys.executable, "-S", "-c", script], check=False, capture_output=True)
        if tried.returncode == 0:
            return Isolation(flags)
    return Isolation(0)


class WorkerHandle:
    """One worker. Every call has a deadline; the first failure ends the process."""

    def __init__(self, server: ForkServer, channel: Channel, pid: int, deadline: float) -> None:
        """Used by ``ForkServer.worker`` only; ``deadline`` in ``time.monotonic`` seconds."""
        self._server = server
        self._channel = channel
        self._pid = pid
        self._deadline = deadline

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one order and wait for its answer.

        Raises:
            WorkerDied: no (proper) answer came; the worker is gone afterwards.
        """
        try:
            self._channel.send({"op": op, **fields})
            return self._channel.receive(max(self._deadline - time.monotonic(), 0.001))
        except ChannelTimeout:
            raise WorkerDied(
                f"it did not finish `{op}` before the deadline and was ended", hung=True
            ) from None
        except ChannelClosed:
            raise WorkerDied(
                f"the process ended during `{op}`: {self._server.how_it_ended(self._pid)}"
            ) from None
        except ChannelError as error:
            raise WorkerDied(f"it answered `{op}` with {error}") from None


class ForkServer:
    """A warm process that forks workers. Thread-safe; starts on first use."""

    def __init__(self, mode: Mode, isolation: Isolation, arch: str = "") -> None:
        """``arch`` (``sm_90``) is what ``compile`` workers compile for."""
        self.mode = mode
        self.isolation = isolation
        self.arch = arch
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._scratch = Path()
        self._started: dict[int, int] = {}
        self._exits: dict[int, int] = {}
        self._news = threading.Condition()

    def start(self) -> None:
        """Launch the process without waiting until it is ready."""
        with self._lock:
            if self._process is not None:
                return
            self._scratch = Path(tempfile.mkdtemp(prefix="kernelllm-"))
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            environment |= {
                "HOME": str(self._scratch),
                "PYTHONNOUSERSITE": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            environment["TRITON_INTERPRET"] = "1" if self.mode == "interpret" else "0"
            if self.mode != "cuda":
                environment["CUDA_VISIBLE_DEVICES"] = ""
            environment["PYTHONPATH"] = os.pathsep.join(_import_paths())
            log = (self._scratch / "server.log").open("wb")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest_kernelllm.judge.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            log.close()
            theirs.close()
            self._control = ours
            threading.Thread(target=self._listen, name=f"kernelllm-{self.mode}", daemon=True).start()

    @contextlib.contextmanager
    def worker(self, seconds: float, arena_fd: int = -1) -> Iterator[WorkerHandle]:
        """A fresh worker that lives at most ``seconds``; it and all its children are gone on leaving.

        Raises:
            ServerFailed: the fork server itself could not start.
        """
        self.start()
        number = next(self._numbers)
        directory = self._scratch / f"worker-{number}"
        directory.mkdir()
        ours, theirs = socket.socketpair()
        order = {
            "id": number,
            "directory": str(directory),
            "unshare": self.isolation.unshare,
            "arch": self.arch,
            "limits": self._limits(seconds),
        }
        fds = [theirs.fileno()] + ([arena_fd] if arena_fd >= 0 else [])
        self._wait(lambda: -1 in self._started, START_TIMEOUT)
        with self._lock:
            assert self._control is not None
            socket.send_fds(self._control, [json.dumps(order).encode()], fds)
        theirs.close()
        self._wait(lambda: number in self._started, 30.0)
        pid = self._started[number]
        channel = Channel(ours)
        try:
            yield WorkerHandle(self, channel, pid, time.monotonic() + seconds)
        finally:
            channel.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(directory, ignore_errors=True)

    def how_it_ended(self, pid: int) -> str:
        """In words, how a worker's process ended."""
        try:
            self._wait(lambda: pid in self._exits, 5.0)
        except ServerFailed:
            return "its channel closed"
        code = self._exits[pid]
        if code >= 0:
            return f"it exited with status {code}"
        return f"killed by {signal.Signals(-code).name}"

    def close(self) -> None:
        """End the server and every worker."""
        with self._lock:
            process, control, self._process = self._process, self._control, None
        if process is None or control is None:
            return
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_RDWR)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        control.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _limits(self, seconds: float) -> dict[str, int]:
        limits = {
            "RLIMIT_CPU": int(seconds * 4) + 5,
            "RLIMIT_FSIZE": GIB,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 1024,
        }
        # CUDA maps hundreds of GiB of addresses, so memory can be bounded this way on the CPU only.
        return limits if self.mode == "cuda" else {**limits, "RLIMIT_AS": 32 * GIB}

    def _listen(self) -> None:
        control = self._control
        assert control is not None
        while True:
            try:
                data = control.recv(65536)
            except OSError:
                data = b""
            with self._news:
                if not data:
                    self._news.notify_all()
                    return
                message = json.loads(data)
                if "ready" in message:
                    self._started[-1] = message["ready"]
                elif "started" in message:
                    self._started[message["id"]] = message["started"]
                else:
                    self._exits[message["exited"]] = message["status"]
                self._news.notify_all()

    def _wait(self, condition: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._news:
            while not condition():
                process = self._process
                if process is None or process.poll() is not None or time.monotonic() > end:
                    raise ServerFailed(f"The judge's {self.mode} process did not start: {self._last_words()}")
                self._news.wait(0.2)

    def _last_words(self) -> str:
        log = self._scratch / "server.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "it said nothing."
