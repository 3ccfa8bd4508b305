"""Forks processes from one that has imported what they need, because importing it takes each of them longer than all else at first.

``python -m kernelllm_judge.forking FD MODULE…`` imports modules that neither start threads nor touch a GPU. For each request on its
socket it forks a process, which calls ``main(argument, descriptors)`` of the module named there. Each forked process has a socket
that reports its number and how it ended. Its number stays its own until whoever holds the other end closes that.

Standard library only, because untrusted workers are forked in this way, too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

MOST_FDS = 16
"""Descriptors that a request may have."""

LAST = 0.5
"""Seconds that the process that forks has for its end."""


class HostEnded(RuntimeError):
    """The process that forks does not live any more; the text is what it printed last."""


class Forked:
    """One forked process, as another process sees it. Close it, so that it is reaped."""

    def __init__(self, status: socket.socket) -> None:
        """``status`` reports its number, and its end."""
        self._status = status
        self._lock = threading.Lock()
        self._number = 0
        self._code: int | None = None
        self._over = False

    def number(self) -> int:
        """Returns its process id; 0 as long as it has not been forked. Never waits."""
        self._read()
        return self._number

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it has ended, or nothing is known of it any more; returns whether that is so."""
        self._read()
        while not self._over:
            if not select.select([self._status], [], [], seconds)[0]:
                return False
            self._read()
        return True

    @property
    def code(self) -> int | None:
        """How it ended: its exit status, or minus the signal that killed it; None if that is unknown."""
        return self._code

    def close(self) -> None:
        """Has it reaped when it ends."""
        self._status.close()

    def _read(self) -> None:
        """Reads what has been reported; several threads may."""
        with self._lock:
            while not self._over:
                try:
                    what, _, value = self._status.recv(64, socket.MSG_DONTWAIT).decode().partition(" ")
                except BlockingIOError:
                    return
                except OSError:  # the process that forks was killed, or this was closed
                    what = value = ""
                if what == "number":
                    self._number = int(value)
                else:
                    self._over = True
                    self._code = int(value) if value else None
                    with contextlib.suppress(OSError):  # another thread may wait for what this one has read
                        self._status.shutdown(socket.SHUT_RD)


class ForkHost:
    """A connection to the process that forks. Thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection`` leads to a process that ``StartedHost`` started."""
        self._connection = connection
        self._lock = threading.Lock()

    def fork(
        self,
        module: str,
        argument: Any,
        descriptors: Sequence[int],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: int,
        path: Sequence[str] = (),
    ) -> Forked:
        """Has a process forked that calls ``main(argument, descriptors)`` of a module; does not wait until it is.

        Args:
            argument: JSON.
            environment: all of its environment variables.
            folder: its working directory.
            log: descriptor of what it prints.
            path: its ``sys.path``; empty: that of the process it is forked from.

        Raises:
            HostEnded: nothing forks any more.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "module": module,
            "argument": argument,
            "environment": dict(environment),
            "folder": str(folder),
            "path": list(path),
        }
        with theirs:
            self._send(request, [theirs.fileno(), log, *descriptors])
        return Forked(ours)

    def connect(self) -> socket.socket:
        """Returns a socket from which another process may make a ``ForkHost`` of the same process.

        Raises:
            HostEnded: nothing forks any more.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._send({}, [theirs.fileno()])
        return ours

    @property
    def lives(self) -> bool:
        """Whether it can still fork, as far as is known."""
        # At the end of a connection one reads nothing.
        return not select.select([self._connection], [], [], 0)[0]

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        content = os.memfd_create("request")  # what a socket takes at once is bounded
        try:
            os.write(content, json.dumps(request).encode())
            with self._lock:
                socket.send_fds(self._connection, [b"request"], [content, *descriptors])
        except OSError:
            raise HostEnded(self.last_words()) from None
        finally:
            os.close(content)

    def last_words(self) -> str:
        """Returns the last line that the process printed, if that is known."""
        return "the process that forks has ended"


class StartedHost(ForkHost):
    """Starts the process that forks, and ends it."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str], path: Sequence[str]) -> None:
        """Starts it; it imports modules before it forks anything.

        Args:
            environment: its environment variables, which also its memory shows to all that is forked.
            path: where it finds modules.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                env={**environment, "PYTHONPATH": os.pathsep.join(path)},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for the command, which then ends its processes in good order
            )

    def last_words(self) -> str:
        """Returns the last line that it printed."""
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace").strip()
        return printed.rpartition("\n")[2] or super().last_words()

    def close(self) -> None:
        """Ends it. What it forked goes on, unless that asks to end with it."""
        super().close()
        try:
            self._process.wait(LAST)  # it reaps what has ended
        except subprocess.TimeoutExpired:  # it still imports
            self._process.kill()
            self._process.wait()
        self._log.close()


class _Host:
    """Forks in the process that has imported what is needed."""

    def __init__(self, connection: socket.socket) -> None:
        self._first = connection
        self._connections = {connection.fileno(): connection}
        self._statuses: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of its status socket: a forked process for which somebody asks."""
        self._ended: set[int] = set()
        """Those of them that have ended."""
        self._left: set[int] = set()
        """Forked processes for which nobody asks any more."""
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> tuple[dict[str, Any], list[int]] | None:
        """Forks until the first connection is closed; returns a request and its descriptors in a forked process, else None."""
        over = False
        while not over:
            readable, _, _ = select.select([*self._connections, *self._statuses, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
                self._look_after_children()
            for fd in readable:
                if fd in self._statuses:
                    number, status = self._statuses.pop(fd)
                    status.close()
                    self._left.add(number)
                    self._look_after_children()
                elif fd in self._connections:
                    received = self._receive(self._connections[fd])
                    if received is None:
                        over = over or self._connections[fd] is self._first
                        self._connections.pop(fd).close()
                        continue
                    request, descriptors = received
                    if not request:
                        self._connections[descriptors[0]] = socket.socket(fileno=descriptors[0])
                    elif self._fork(descriptors):
                        return request, descriptors[1:]
        return None

    def _receive(self, connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
        try:
            _, descriptors, _, _ = socket.recv_fds(connection, 64, MOST_FDS)
        except ConnectionError:
            return None
        if not descriptors:
            return None
        with os.fdopen(descriptors[0], "rb") as content:
            content.seek(0)
            return json.load(content), descriptors[1:]

    def _fork(self, descriptors: list[int]) -> bool:
        """Forks, and returns whether this is the forked process."""
        number = os.fork()
        if number == 0:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (*self._connections.values(), *(status for _, status in self._statuses.values())):
                each.close()
            for fd in (self._wake, self._wake_write, descriptors[0]):
                os.close(fd)
            return True
        status = socket.socket(fileno=descriptors[0])
        for fd in descriptors[1:]:
            os.close(fd)
        self._statuses[status.fileno()] = number, status
        _tell(status, f"number {number}")
        return False

    def _look_after_children(self) -> None:
        """Reports who has ended, and reaps those for which nobody asks."""
        for number, status in self._statuses.values():
            if number not in self._ended:
                how = os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if how is not None:
                    self._ended.add(number)
                    _tell(
                        status, f"ended {how.si_status if how.si_code == os.CLD_EXITED else -how.si_status}"
                    )
        for number in list(self._left):
            if os.waitpid(number, os.WNOHANG)[0]:
                self._left.remove(number)
                self._ended.discard(number)


def _tell(status: socket.socket, report: str) -> None:
    with contextlib.suppress(OSError):  # nobody asks any more
        status.send(report.encode())


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In a forked process: does what was requested."""
    log, *descriptors = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[:] = [request["module"]]
    if request["path"]:
        sys.path[:] = request["path"]
    import_module(request["module"]).main(request["argument"], descriptors)


def main(argv: Sequence[str]) -> None:
    """Imports modules, then forks until the other end of its socket is closed."""
    for module in argv[2:]:
        import_module(module)
    gc.collect()
    gc.freeze()  # what all of them share is not written to
    forked = _Host(socket.socket(fileno=int(argv[1]))).serve()
    if forked is not None:
        _become(*forked)


if __name__ == "__main__":
    main(sys.argv)
