"""Starts fork servers, opens workers with a deadline, and ends them with all their child processes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelllm_judge.handle import Exit, Released, WorkerHandle
from kernelllm_judge.isolation import scratch
from kernelllm_judge.isolation.isolation import CLONE_NEWUSER, Isolation, Mode
from kernelllm_judge.isolation.processes import ResourceBounds
from kernelllm_judge.launching import Launch, Launched, ServerFailed, ServerHost
from kernelllm_judge.shared.channel import Channel

START_TIMEOUT = 120.0
"""Seconds a fork server may take to import torch and triton, on a cold disk too."""

STARTS = 3
"""How often in a row a process may fail to start before it is not started any more."""

GIB = 1024**3


def _nothing() -> None:
    """Does nothing: the default for ``on_exit``."""


class ForkServer:
    """A process that has imported torch and triton and forks workers. Thread-safe; starts on first use."""

    def __init__(
        self,
        mode: Mode,
        isolation: Isolation,
        arch: str = "",
        bounds: ResourceBounds | None = None,
        host: ServerHost | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            arch: for ``compile`` workers, such as ``sm_90``.
            bounds: limits a worker's resources.
            host: what it is forked from; None: one of its own.
        """
        self.mode = mode
        self.isolation = isolation
        self.host = host or ServerHost()
        self._own_host = host is None
        self.arch = arch
        self._bounds = bounds or ResourceBounds()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._launched: Launched | None = None
        self._control: socket.socket | None = None
        self._scratch = Path()
        self.pid = 0
        """Id of the server's process, once it is ready."""
        self._gone = False
        """Whether the process has closed its end of the socket."""
        self._failed_starts = 0
        """Failed starts in a row; something may have killed the server before it was ready."""
        self._protocol_error = ""
        self._started: set[int] = set()
        self._exits: dict[int, Exit] = {}
        self._on_full_disk: set[int] = set()
        """Workers during which the disk was full."""
        self._folders: dict[int, Path] = {}
        self._on_exit: dict[int, Callable[[], None]] = {}
        self._listener: threading.Thread | None = None
        self._changed = threading.Condition()

    def start(self) -> None:
        """Launches the process, again if it has ended; does not wait until it is ready."""
        start_together([self])

    @property
    def _was_killed(self) -> bool:
        return self._gone and self._failed_starts < STARTS and not self._protocol_error

    @contextlib.contextmanager
    def worker(
        self,
        seconds: float,
        buffers_fd: int = -1,
        on_exit: Callable[[], None] = _nothing,
        released: Released = contextlib.nullcontext,
    ) -> Iterator[WorkerHandle]:
        """Opens a fresh worker; at the end of the block it is ended with all its child processes.

        Args:
            seconds: how long all its replies may take together.
            buffers_fd: descriptor of the shared buffers, passed on to the worker; -1 on a GPU.
            on_exit: called once, from any thread, after the block, when the worker's process has ended;
                at the latest by ``close``.
            released: the worker compiles in this context.

        Raises:
            ServerFailed: the fork server itself could not start.
        """
        number = next(self._numbers)
        try:
            channel = self._open(number, seconds, buffers_fd)
            try:
                how_ended = functools.partial(self._how_ended, number)
                on_full_disk = functools.partial(self._was_on_full_disk, number)
                yield WorkerHandle(channel, how_ended, seconds, released, on_full_disk)
            finally:
                channel.close()
                # The server, its parent, ends it: for others the pid may belong to another process by now.
                with contextlib.suppress(OSError):
                    self._send({"end": number}, [])
        finally:
            self._call_on_exit(number, on_exit)

    def _open(self, number: int, seconds: float, buffers_fd: int) -> Channel:
        """Has a worker forked and returns the channel to it."""
        self.start()
        directory = self._scratch / f"worker-{number}"
        directory.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        request = {
            "id": number,
            "directory": str(directory),
            "limits": self._limits(seconds),
            "bounds": asdict(self._bounds),
        }
        fds = [theirs.fileno()] + ([buffers_fd] if buffers_fd >= 0 else [])
        self._wait(lambda: self.pid != 0, START_TIMEOUT)
        self._folders[number] = directory
        self._send(request, fds)
        theirs.close()
        self._wait(lambda: number in self._started, 30.0)
        return Channel(ours)

    def _call_on_exit(self, number: int, on_exit: Callable[[], None]) -> None:
        """Calls ``on_exit`` now if the worker has ended or there is no server; otherwise when it ends."""
        with self._changed:
            ended = number in self._exits or self._launched is None
            if not ended:
                self._on_exit[number] = on_exit
        if ended:
            on_exit()

    def _how_ended(self, number: int) -> Exit:
        """Returns how a worker's process ended."""
        launched = self._launched
        try:
            self._wait(lambda: number in self._exits, 5.0)
        except ServerFailed:
            return Exit("its channel closed", killed=self._gone or self._launched is not launched)
        return self._exits[number]

    def _was_on_full_disk(self, number: int) -> bool:
        """Returns whether the disk is full, or was while a worker ran, as far as its server saw."""
        return number in self._on_full_disk or scratch.is_full(self._scratch)

    def _send(self, request: dict[str, Any], fds: list[int]) -> None:
        with self._lock:
            if self._control is not None:
                socket.send_fds(self._control, [json.dumps(request).encode()], fds)

    def close(self) -> None:
        """Ends the server and every worker."""
        with self._lock:
            launched, control, self._launched = self._launched, self._control, None
            self._control = None
        if launched is not None and control is not None:
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_WR)  # the server still reports the ends of its workers
            # Its listener may be giving a GPU's memory back, which must not outlast the interpreter.
            if self._listener is not None:
                self._listener.join(5 if self.pid else 0)
                if self._listener.is_alive():  # it does not listen, or not yet
                    launched.kill()
                    control.shutdown(socket.SHUT_RDWR)
                    self._listener.join(5)
            self._clear(launched, control)
            if self._own_host:
                self.host.close()

    def _clear(self, launched: Launched, control: socket.socket) -> None:
        """Releases what belongs to a process that has ended; its workers ended with it."""
        launched.leave()
        control.close()
        scratch.remove(self._scratch)
        with self._changed:
            self._folders.clear()
            left = list(self._on_exit.values())
            self._on_exit.clear()
        for on_exit in left:
            on_exit()

    def _limits(self, seconds: float) -> dict[str, int]:
        limits = {
            "RLIMIT_CPU": int(seconds * 4) + 5,
            "RLIMIT_FSIZE": GIB,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 1024,
        }
        if self.isolation.unshare & CLONE_NEWUSER:
            limits["RLIMIT_NPROC"] = self._bounds.tasks  # counted for the worker's namespace alone
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
            with self._changed:
                if not data:
                    self._gone = True
                    self._failed_starts += self.pid == 0
                    self._changed.notify_all()
                    return
                try:
                    ended = self._handle_message(json.loads(data))
                except (ValueError, KeyError, TypeError):
                    # Only the server holds the other end; ignoring the message would hide that something
                    # else does.
                    self._protocol_error = (
                        f"its control channel sent {data[:80]!r}, which is not a valid message."
                    )
                    if self._launched is not None:
                        self._launched.kill()
                    self._gone = True
                    self._changed.notify_all()
                    return
                self._changed.notify_all()
            if ended is not None:
                scratch.remove(self._folders.pop(ended))
                self._on_exit.pop(ended, _nothing)()

    def _handle_message(self, message: dict[str, Any]) -> int | None:
        """Records a message of the server. Returns a worker's number if the message reports its end."""
        if "ready" in message:
            self.pid = int(message["ready"])
            self._failed_starts = 0
        elif "disk full" in message:
            self._on_full_disk.update(map(int, message["disk full"]))
        elif "started" in message:
            self._started.add(message["started"])
        else:
            number = int(message["exited"])
            self._exits[number] = _describe_exit(message["status"], message["why"])
            return number
        return None

    def _wait(self, condition: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        launched = self._launched
        with self._changed:
            while not condition():
                gone = self._gone or self._launched is not launched
                if launched is None or gone or time.monotonic() > end:
                    raise ServerFailed(
                        f"The judge's {self.mode} process did not start: {self._failure_reason()}"
                        if self.pid == 0
                        else f"The judge's {self.mode} process ended: {self._failure_reason()}"
                    )
                self._changed.wait(0.2)

    def _failure_reason(self) -> str:
        if self._protocol_error:
            return self._protocol_error
        printed = self._launched.last_error() if self._launched is not None else ""
        return printed or "it printed no error."

    def _prepare(self) -> Launch:
        """Makes the folder and the socket of the process."""
        if self._launched is not None and self._control is not None:  # it was killed
            self._clear(self._launched, self._control)
        self.pid, self._gone = 0, False
        self._scratch = Path(tempfile.mkdtemp(prefix="kernelllm-"))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Launch(self.mode, self.isolation, self.arch, self._scratch, theirs)

    def _attach(self, launched: Launched) -> None:
        """Listens to the process, which has been launched."""
        self._launched = launched
        self._listener = threading.Thread(target=self._listen, name=f"kernelllm-{self.mode}", daemon=True)
        self._listener.start()


def start_together(servers: Sequence[ForkServer]) -> None:
    """Launches those that do not run (any more) from one process, which imports torch once for all of them.

    It does not wait until they are ready.

    Raises:
        ServerFailed: they cannot be launched; for example torch, triton or numpy is not installed.
    """
    with contextlib.ExitStack() as held:
        for server in servers:
            held.enter_context(server._lock)
        new = [server for server in servers if server._launched is None or server._was_killed]
        if not new:
            return
        launches = [server._prepare() for server in new]
        try:
            launched = Launched(launches, new[0].host)
        except BaseException:
            for launch in launches:
                scratch.remove(launch.scratch)
            raise
        finally:
            for launch in launches:
                launch.control.close()
        for server in new:
            server._attach(launched)


def _describe_exit(status: int, why: str) -> Exit:
    """Returns how a process ended, by the server's reason or the exit status (negative: a signal)."""
    if why:
        return Exit(f"it was ended because {why}")
    if status >= 0:
        return Exit(f"it exited with status {status}")
    known = {int(number): number.name for number in signal.Signals}
    return Exit(f"killed by {known.get(-status, f'signal {-status}')}", killed=True)
