"""The fork server: a process that has imported torch and triton, and forks one worker per candidate.

It never initialises CUDA, and is itself forked from a process that has imported torch (``launching.ServerHost``). A server
speaks to the judge over a Unix socket: each request is one JSON datagram, with the worker's channel and the
file of shared buffers as descriptors. It reports the start and end of workers the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kernelllm_judge.isolation import scratch
from kernelllm_judge.isolation.isolation import Isolation, seal
from kernelllm_judge.isolation.landlock import Allowed
from kernelllm_judge.isolation.processes import (
    ResourceBounds,
    descendants,
    excess,
    kill_all,
    orphans,
    process_table,
)
from kernelllm_judge.isolation.reachable import gpu_devices, other_gpus, reachable

PR_SET_CHILD_SUBREAPER = 36

TRIAL_SECONDS = 30
"""Seconds in which CUDA must start for workers to be kept from other GPUs."""

CHECK_INTERVAL = 0.25
"""Seconds between two checks of the resources that workers use."""


@dataclass(frozen=True)
class WorkerRecord:
    """What the server knows about one worker."""

    number: int
    """The judge's number for the worker."""
    directory: Path
    buffers: int
    """The inode of the file of shared buffers; -1 if there is none."""
    bounds: ResourceBounds


class Server:
    """Forks workers on request, enforces their bounds, and reports their ends."""

    def __init__(self, control: socket.socket, isolation: Isolation, arch: str) -> None:
        """``control`` is connected to the judge."""
        self._control = control
        self._isolation = isolation
        self._arch = arch
        self._reachable = reachable(gpu=isolation.gpu)
        self._other_gpus: frozenset[str] = frozenset()
        """Names of devices that workers cannot open."""
        self._workers: dict[int, WorkerRecord] = {}
        self._why: dict[int, str] = {}
        # The end of a child wakes up the `select` in `serve`.
        self._wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def check_sealing(self) -> None:
        """Seals a child process that does nothing, to find out before any candidate runs if sealing fails.

        Raises:
            SystemExit: sealing failed; the reason is on standard error.
        """
        if not self._sealed(lambda: True):
            raise SystemExit(1)

    def leave_out_other_gpus(self) -> None:
        """Lets workers open their own GPU's device only, where CUDA starts then.

        It opens every GPU that it can, whatever ``CUDA_VISIBLE_DEVICES`` says, and drivers do that for one process after the
        other: on four H200s, contexts of 32 processes were 5.8 a second, where a machine of one GPU gives 12.8.
        """
        if self._isolation.gpu and self._isolation.landlock:
            self._other_gpus = other_gpus(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
            if self._other_gpus and not self._sealed(cuda_starts_here):
                self._other_gpus = frozenset()

    def _sealed(self, action: Callable[[], bool]) -> bool:
        """Returns what an action returns in a child process that is sealed as a worker is; False if sealing failed."""
        with tempfile.TemporaryDirectory(dir=".") as folder:
            pid = os.fork()
            if pid == 0:
                try:
                    seal(self._isolation, Path(folder).absolute(), self._reachable_files(), {}, ())
                except OSError as error:
                    print(f"a worker cannot be isolated: {error}", file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0 if action() else 1)
            return os.waitpid(pid, 0)[1] == 0

    def serve(self) -> None:
        """Handles requests until the judge closes the socket."""
        self._report({"ready": os.getpid()})
        checked = time.monotonic()
        while True:
            readable, _, _ = select.select(
                [self._control.fileno(), self._wake], [], [], CHECK_INTERVAL if self._workers else None
            )
            if self._wake in readable:
                os.read(self._wake, 4096)
                self._reap()
            if self._workers and time.monotonic() - checked >= CHECK_INTERVAL:
                self._enforce_bounds()
                checked = time.monotonic()
            if self._control.fileno() in readable:
                data, fds = self._receive()
                if not data:
                    kill_all(lambda table: descendants([os.getpid()], table) - {os.getpid()})
                    scratch.remove(Path.cwd())  # the judge itself may have been killed
                    return
                request = json.loads(data)
                if "end" in request:
                    self._end(
                        [pid for pid, record in self._workers.items() if record.number == request["end"]]
                    )
                else:
                    self._start(request, fds)

    def _start(self, request: dict[str, Any], fds: list[int]) -> None:
        buffers = os.fstat(fds[1]) if len(fds) > 1 else None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._become_worker(request, fds)
        for fd in fds:
            os.close(fd)
        directory = Path(request["directory"])
        bounds = ResourceBounds(**request["bounds"])
        self._workers[pid] = WorkerRecord(request["id"], directory, buffers.st_ino if buffers else -1, bounds)
        self._report({"started": request["id"]})

    def _become_worker(self, request: dict[str, Any], fds: list[int]) -> None:
        """In the child process: leaves the process group, applies the isolation, then serves. Never returns."""
        from kernelllm_judge.worker.warm import seed_cache

        status = 1
        try:
            os.setsid()
            directory = Path(request["directory"])
            os.chdir(directory)
            seed_cache(directory.parent, directory / "triton")
            seal(self._isolation, directory, self._reachable_files(), request["limits"], fds)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.close(null)
            os.environ.update(
                HOME=str(directory), TMPDIR=str(directory), TRITON_CACHE_DIR=str(directory / "triton")
            )
            tempfile.tempdir = None
            import torch

            from kernelllm_judge.shared.channel import Channel
            from kernelllm_judge.worker.worker import Worker

            torch.set_num_threads(1)
            with torch.no_grad():
                channel = Channel(socket.socket(fileno=fds[0]))
                Worker(channel, directory, fds[1] if len(fds) > 1 else -1, self._arch).serve()
            status = 0
        except Exception:
            traceback.print_exc()  # to the server's log, until standard error is closed
        finally:
            # Skip atexit handlers and finalisers: they belong to the server.
            os._exit(status)

    def _reachable_files(self) -> list[Allowed]:
        return [*self._reachable, *(gpu_devices(self._other_gpus) if self._isolation.gpu else ())]

    def _enforce_bounds(self) -> None:
        """Ends workers that exceed their bounds, and processes that detached from their worker; reports a full disk."""
        if scratch.is_full(Path()):
            self._report({"disk full": [record.number for record in self._workers.values()]})
        table = process_table()
        for pid, record in self._workers.items():
            why = excess(pid, record.directory, table, record.bounds, record.buffers)
            if why:
                self._why[record.number] = why
                self._end([pid])
        if orphans(self._workers, table):
            kill_all(lambda table: orphans(self._workers, table))

    def _end(self, workers: Iterable[int]) -> None:
        roots = list(workers)
        kill_all(lambda table: descendants(roots, table))

    def _reap(self) -> None:
        """Reports workers that have ended, and ends the processes that they left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if record := self._workers.pop(pid, None):
                kill_all(lambda table: orphans(self._workers, table))
                why = self._why.pop(record.number, "")
                code = os.waitstatus_to_exitcode(status)
                self._report({"exited": record.number, "status": code, "why": why})

    def _receive(self) -> tuple[bytes, list[int]]:
        """Returns a request and its descriptors; nothing where the judge has ended, read or unread what was reported."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 65536, 2)
        except ConnectionError:
            return b"", []
        return data, fds

    def _report(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the judge has ended, which `serve` notices
            self._control.send(json.dumps(message).encode())


def main(servers: Sequence[dict[str, Any]], controls: Sequence[int]) -> None:
    """Forks the fork servers, and waits until all of them have ended.

    Args:
        servers: ``launching.Launch.options`` of each.
        controls: for each, the descriptor of its socket to the judge.
    """
    for server, control in zip(servers, controls, strict=True):
        if os.fork() == 0:
            for other in controls:
                if other != control:
                    os.close(other)
            run_server(server, control)
    for control in controls:
        os.close(control)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def cuda_starts_here() -> bool:
    """Whether CUDA starts in this process, and makes a context on its first GPU, within ``TRIAL_SECONDS``."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TRIAL_SECONDS)  # ends the process
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    # 0 is CUDA_SUCCESS.
    return not (driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))


def run_server(options: dict[str, Any], control: int) -> NoReturn:
    """Runs one fork server in this process until the judge closes the socket."""
    status = 1
    try:
        os.chdir(options["directory"])
        os.environ.update(options["environment"])
        # Orphans of an ended worker become children of this process, which ends them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        # Imported here once for all workers.
        import triton  # noqa: F401  (preloaded)

        from kernelllm_judge.worker import worker  # noqa: F401  (preloaded)
        from kernelllm_judge.worker.warm import warm_up, warm_up_interpreter

        isolation = Isolation(**options["isolation"])
        if options["mode"] == "construct":
            from kernelllm_judge.worker import constructing  # noqa: F401  (preloaded)
        elif options["mode"] == "interpret":
            warm_up_interpreter()
        else:
            warm_up(Path.cwd(), gpu=options["mode"] == "cuda")
        server = Server(socket.socket(fileno=control), isolation, options["arch"])
        server.check_sealing()
        server.leave_out_other_gpus()
        server.serve()
        status = 0
    except SystemExit:
        pass  # it has said why
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)  # what runs at exit belongs to the process that was forked
