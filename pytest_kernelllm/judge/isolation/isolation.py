"""What holds a worker: which measures this machine allows, the level they make, and how a worker takes them on.

``probe_isolation`` is the judge's side; ``seal`` runs in the worker, before anything of a candidate is read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_kernelllm.core.errors import ConfigError
from pytest_kernelllm.judge.isolation import landlock, seccomp
from pytest_kernelllm.judge.isolation.landlock import OWN, READ, READ_FILE, TRUNCATE, WRITE_FILE, Allowed

Mode = Literal["interpret", "compile", "cuda"]
Device = Literal["cpu", "cuda"]
RequestedIsolation = Literal["best", "strict"]

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_DAC_READ_SEARCH = 1 << 2


class IsolationError(ConfigError):
    """Strict isolation was asked for, and this machine cannot give it; the text names what is missing."""


@dataclass(frozen=True)
class Isolation:
    """What holds a worker in this environment, as reported in records. Each measure can be left out by name."""

    unshare: int = 0
    """Flags of ``unshare(2)`` that give a worker a network of its own with nothing in it; 0: not possible here."""
    landlock: int = 0
    """The version of Landlock that bounds files, TCP and signals; 0: none."""
    seccomp: bool = False
    """System calls that no kernel module needs are refused."""
    capabilities: bool = True
    """Root's capabilities are given up."""
    gpu: bool = False
    """The NVIDIA devices are reachable."""
    unix_sockets: bool = False
    """Unix sockets can be made, as CUDA's driver does; none can be connected."""
    memfd: bool = False
    """Files in memory can be made."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What full isolation lacks here, each as words that follow "missing"; empty if nothing."""
        lacks = []
        if self.landlock < 3:
            lacks.append(
                "Landlock 3 for files (Linux 6.2 or later with `landlock` among its security modules)"
            )
        if not self.seccomp:
            lacks.append("a system call filter (seccomp, on x86_64 or aarch64)")
        return tuple(lacks)

    @property
    def level(self) -> str:
        """One line: full or partial, the measures in force and those missing."""
        parts = ["own process group", "clean environment", "resource limits"]
        if self.unshare or self.seccomp:
            parts.append("no network")
        if self.landlock:
            parts.append(f"files by Landlock {self.landlock}")
        if self.seccomp:
            parts.append("system calls by seccomp")
        text = f"{'partial' if self.missing else 'full'}: {', '.join(parts)}"
        return f"{text}; missing {' and '.join(self.missing)}" if self.missing else text

    def at_least(self, requested: RequestedIsolation) -> Isolation:
        """This, if it is enough: ``strict`` takes nothing less than full isolation, ``best`` what there is.

        Raises:
            IsolationError: it is not.
        """
        if requested == "strict" and self.missing:
            raise IsolationError(
                f"Strict isolation is not to be had on this machine: it lacks {' and '.join(self.missing)}; "
                'with isolation "best" candidates run under what there is.'
            )
        return self


def probe_isolation(device: Device, requested: RequestedIsolation = "best") -> Isolation:
    """Find out what this machine allows.

    Without root a network namespace needs a user namespace, across which CUDA's shared memory does not open; the
    system call filter then closes the network alone.

    Args:
        device: where the workers' kernels run.
        requested: ``strict`` accepts nothing less than full isolation.

    Raises:
        IsolationError: ``strict`` was asked for and something is missing.
    """
    gpu = device == "cuda"
    found = Isolation(
        unshare=_network_namespace((CLONE_NEWNET,) if gpu else (CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET)),
        landlock=landlock.abi(),
        seccomp=seccomp.available(),
        gpu=gpu,
        unix_sockets=gpu,
        memfd=gpu,
    )
    return found.at_least(requested)


def _network_namespace(choices: Iterable[int]) -> int:
    for flags in choices:
        script = f"import ctypes,sys; sys.exit(ctypes.CDLL(None).unshare({flags}) != 0)"
        tried = subprocess.run([sys.executable, "-I", "-S", "-c", script], check=False, capture_output=True)
        if tried.returncode == 0:
            return flags
    return 0


def seal(
    isolation: Isolation,
    directory: Path,
    reachable: Iterable[Allowed],
    limits: Mapping[str, int],
    keep: Iterable[int],
) -> None:
    """Take on every measure, for this process and all it will start. It must have one thread.

    Args:
        isolation: the measures in force.
        directory: the only folder that stays writable.
        reachable: from ``reachable.reachable``.
        limits: by the names of ``resource``, in its units.
        keep: descriptors that stay open, beside 0, 1 and 2.

    Raises:
        OSError: a measure failed; the process must end.
    """
    _close_all_but({0, 1, 2, *keep})
    # When memory runs out, the kernel is to take this process, not the user's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    libc = ctypes.CDLL(None, use_errno=True)
    if isolation.unshare:
        _checked(libc.unshare(isolation.unshare), "an empty network")
    for name, value in limits.items():
        _limit(getattr(resource, name), value)
    if isolation.capabilities:
        # Root may run the judge from another user's folders. Landlock still bounds which.
        searching = isolation.landlock and os.getuid() == 0 and not isolation.unshare & CLONE_NEWUSER
        _drop_capabilities(libc, _DAC_READ_SEARCH if searching else 0)
    # New credentials clear both: the second lets this process read its own /proc.
    _checked(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "an end with the server")
    _checked(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "its own /proc")
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    if isolation.landlock:
        # Kept open: a rule holds for the inode, which lives as long as somebody refers to it.
        own = os.open(f"/proc/{os.getpid()}", os.O_PATH | os.O_CLOEXEC)
        # CUDA's driver does not start unless it can name its threads, in files there.
        of_itself = READ | WRITE_FILE | TRUNCATE if isolation.gpu else READ
        allowed = [Allowed(f"/proc/self/fd/{own}", of_itself), Allowed(os.fspath(directory), OWN)]
        if isolation.gpu:
            # Where CUDA keeps count of memory that processes share.
            shared = Path("/dev/shm").glob("cuda.shm.*")
            allowed += [Allowed(os.fspath(file), READ_FILE | WRITE_FILE) for file in shared]
        landlock.confine((*reachable, *allowed), isolation.landlock)
    if isolation.seccomp:
        seccomp.confine(
            unix_sockets=isolation.unix_sockets,
            memfd=isolation.memfd,
            signals=isolation.landlock >= 6,
            truncate=isolation.landlock >= 3,
        )


def _close_all_but(keep: set[int]) -> None:
    """Close what the fork brought along."""
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  (numbers, not paths)
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _drop_capabilities(libc: ctypes.CDLL, kept: int) -> None:
    """Give up all capabilities but ``kept``, a bit mask, for good."""
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if not kept >> capability & 1:
            libc.prctl(
                _PR_CAPBSET_DROP, capability, 0, 0, 0
            )  # refused without privileges: nothing to drop then
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), 8)
    if kept:
        data = (ctypes.c_uint32 * 6)()
        _checked(libc.capget(header, data), "its capabilities")
        low = data[1] & kept
        data_bytes = struct.pack("6I", low, low, 0, 0, 0, 0)
    else:
        data_bytes = bytes(24)
    _checked(libc.capset(header, ctypes.create_string_buffer(data_bytes, 24)), "no capabilities")


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
