"""Finds out which isolation this machine supports, and applies it to a worker.

The judge calls ``probe_isolation``; the worker calls ``seal`` before it reads any of a candidate.
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

from kernelllm_judge.core.errors import ConfigError
from kernelllm_judge.isolation import landlock, seccomp
from kernelllm_judge.isolation.landlock import (
    OWN,
    PR_SET_NO_NEW_PRIVS,
    READ,
    READ_FILE,
    TRUNCATE,
    WRITE_FILE,
    Allowed,
    checked,
    load_libc,
)

Mode = Literal["interpret", "compile", "cuda", "construct"]
Device = Literal["cpu", "cuda"]
RequestedIsolation = Literal["best", "strict"]

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_DAC_READ_SEARCH = 1 << 2


class IsolationError(ConfigError):
    """Strict isolation was requested but is not available here; the text names what is missing."""


@dataclass(frozen=True)
class Isolation:
    """The isolation measures in force, as verdicts report them."""

    unshare: int = 0
    """Flags of ``unshare(2)`` that give a worker an empty network namespace; 0: not possible here."""
    landlock: int = 0
    """The version of Landlock, which limits files, TCP and signals; 0: not available."""
    seccomp: bool = False
    """Whether system calls that no kernel module needs are refused."""
    capabilities: bool = True
    """Whether root's capabilities are dropped."""
    gpu: bool = False
    """Whether the NVIDIA devices are reachable."""
    unix_sockets: bool = False
    """Whether Unix sockets can be created, as CUDA's driver does; they can never be connected."""
    memfd: bool = False
    """Whether memory files can be created."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Returns what is missing for full isolation, each in words; empty if nothing."""
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
        """Returns one line: full or partial, the measures in force and those missing."""
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
        """Returns this isolation if it meets the request; ``strict`` requires full isolation.

        Raises:
            IsolationError: ``strict`` was requested and something is missing.
        """
        if requested == "strict" and self.missing:
            raise IsolationError(
                f"Strict isolation is not available here: missing {' and '.join(self.missing)}. "
                'With isolation "best", candidates run under the measures that are available.'
            )
        return self


def probe_isolation(device: Device, requested: RequestedIsolation = "best") -> Isolation:
    """Finds out which isolation this machine supports.

    Without root, a network namespace needs a user namespace, across which CUDA cannot open shared memory.
    On a GPU, only the system call filter then blocks the network.

    Args:
        device: where the workers' kernels run.
        requested: ``strict`` requires full isolation.

    Raises:
        IsolationError: ``strict`` was requested and something is missing.
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
    """Applies every measure to this process and all that it will start. It must have a single thread.

    Args:
        directory: the only folder that stays writable.
        reachable: files that stay reachable, from ``reachable.reachable``.
        limits: resource limits, by their names in ``resource`` and in its units.
        keep: descriptors that stay open besides 0, 1 and 2.

    Raises:
        OSError: a measure failed; the process must not go on.
    """
    _close_all_but({0, 1, 2, *keep})
    # When memory runs out, the kernel should kill this process and not the user's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    libc = load_libc()
    if isolation.unshare:
        checked(libc.unshare(isolation.unshare), "an empty network")
    for name, value in limits.items():
        _limit(getattr(resource, name), value)
    if isolation.capabilities:
        # Root may run the judge from another user's folders. Landlock still limits which.
        searching = isolation.landlock and os.getuid() == 0 and not isolation.unshare & CLONE_NEWUSER
        _drop_capabilities(libc, _DAC_READ_SEARCH if searching else 0)
    # A change of credentials clears both. The second lets this process read its own /proc.
    checked(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "an end with the server")
    checked(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "its own /proc")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    if isolation.landlock:
        # Kept open: a rule holds for the inode, which exists as long as something refers to it.
        own = os.open(f"/proc/{os.getpid()}", os.O_PATH | os.O_CLOEXEC)
        # CUDA's driver does not start unless it can write its threads' names there.
        own_access = READ | WRITE_FILE | TRUNCATE if isolation.gpu else READ
        allowed = [Allowed(f"/proc/self/fd/{own}", own_access), Allowed(os.fspath(directory), OWN)]
        if isolation.gpu:
            # CUDA counts the users of shared memory in these files.
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
    """Closes the descriptors inherited by the fork."""
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  (numbers, not paths)
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _drop_capabilities(libc: ctypes.CDLL, kept: int) -> None:
    """Drops all capabilities but ``kept`` (a bit mask) for good."""
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if not kept >> capability & 1:
            # Refused without privileges: nothing to drop then.
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), 8)
    if kept:
        data = (ctypes.c_uint32 * 6)()
        checked(libc.capget(header, data), "its capabilities")
        low = data[1] & kept
        data_bytes = struct.pack("6I", low, low, 0, 0, 0, 0)
    else:
        data_bytes = bytes(24)
    checked(libc.capset(header, ctypes.create_string_buffer(data_bytes, 24)), "no capabilities")
