"""The fork server: a process that has imported torch and triton, never touched CUDA, and forks one worker a candidate.

Run as ``python -m pytest_kernelllm.judge.server FD``; FD is a Unix socket to the judge. Orders arrive as one JSON
datagram each, with the worker's channel and arena as file descriptors beside it; exits are reported the same way.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> None:
    """Serve until the judge closes its end."""
    control = socket.socket(fileno=int(argv[1]))
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphans of a dead worker come back to this process, which ends them.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A child's end wakes the select below.
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    import torch  # noqa: F401  # warmed up here, once, for every worker
    import triton  # noqa: F401

    from pytest_kernelllm.judge import worker  # noqa: F401

    workers: set[int] = set()
    control.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        readable, _, _ = select.select([control.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            for pid, status in _reap():
                if pid in workers:
                    workers.remove(pid)
                    control.send(
                        json.dumps({"exited": pid, "status": os.waitstatus_to_exitcode(status)}).encode()
                    )
            _end_orphans(workers)
        if control.fileno() in readable:
            data, fds, _, _ = socket.recv_fds(control, 65536, 2)
            if not data:
                for pid in workers:
                    _kill(pid)
                return
            order = json.loads(data)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for fd in (control.fileno(), wake_read, wake_write):
                    os.close(fd)
                _become_worker(order, fds, libc)
            for fd in fds:
                os.close(fd)
            workers.add(pid)
            control.send(json.dumps({"started": pid, "id": order["id"]}).encode())


def _become_worker(order: dict[str, Any], fds: list[int], libc: ctypes.CDLL) -> None:
    """In the child: leave the group, take on limits, give up the network, then serve. Never returns."""
    status = 1
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        directory = Path(order["directory"])
        os.chdir(directory)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        if order["unshare"]:
            libc.unshare(order["unshare"])
        for name, value in order["limits"].items():
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))
        os.environ.update(
            HOME=str(directory), TMPDIR=str(directory), TRITON_CACHE_DIR=str(directory / "triton")
        )
        import torch

        from pytest_kernelllm.judge.channel import Channel
        from pytest_kernelllm.judge.worker import Worker

        torch.set_num_threads(1)
        with torch.no_grad():
            channel = Channel(socket.socket(fileno=fds[0]))
            Worker(channel, directory, fds[1] if len(fds) > 1 else -1, order["arch"]).serve()
        status = 0
    finally:
        # No atexit handlers and no finalisers: they belong to the server.
        os._exit(status)


def _reap() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def _end_orphans(workers: set[int]) -> None:
    """Kill children of this process that are no workers: what a dead worker left behind in other sessions."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        for pid in map(int, children.read_text().split()):
            if pid not in workers:
                _kill(pid)


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main(sys.argv)
