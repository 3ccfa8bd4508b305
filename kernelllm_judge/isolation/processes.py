"""Finds a worker's processes in /proc, compares their use of resources with bounds, and kills them."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 1024**3


def _half_of_memory() -> int:
    return min(32 * GIB, os.sysconf("SC_PHYS_PAGES") * PAGE // 2)


@dataclass(frozen=True)
class Process:
    """One entry of the process table."""

    parent: int
    threads: int
    resident: int
    """Bytes of resident memory."""


@dataclass(frozen=True)
class ResourceBounds:
    """The resources that one worker may use, together with all its child processes."""

    tasks: int = 512
    """Processes and threads; Triton's compilers take about ten."""
    memory: int = field(default_factory=_half_of_memory)
    """Bytes of resident memory; shared pages count once per process."""
    disk: int = 2 * GIB
    """Bytes on disk in its scratch folder, and in open files without a name."""
    files: int = 20_000
    """Entries in its scratch folder."""


def process_table() -> dict[int, Process]:
    """Returns every running process by its pid."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (numbers, not paths; and the fastest there is)
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                found[int(name)] = Process(int(fields[1]), int(fields[17]), int(fields[21]) * PAGE)
    return found


def descendants(roots: Collection[int], table: Mapping[int, Process]) -> set[int]:
    """Returns those of ``roots`` that are alive, and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found, waiting = set(), [pid for pid in roots if pid in table]
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, ())
    return found


def orphans(workers: Collection[int], table: Mapping[int, Process]) -> set[int]:
    """Returns the children of this process that are not workers, with their descendants."""
    own = os.getpid()
    return descendants([p for p, q in table.items() if q.parent == own and p not in workers], table)


def kill_all(find: Callable[[Mapping[int, Process]], set[int]]) -> None:
    """Kills the processes that ``find`` returns, calling it until it returns no new ones.

    All of them are stopped first, so that none can fork while the others are killed.
    """
    stopped: set[int] = set()
    while new := find(process_table()) - stopped:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def excess(
    worker: int, directory: Path, table: Mapping[int, Process], bounds: ResourceBounds, shared: int = -1
) -> str:
    """Describes which bound a worker exceeds, in words that follow "ended because"; empty if none.

    Args:
        table: from ``process_table``.
        shared: the inode of the file of shared buffers, which is not counted.
    """
    members = descendants([worker], table)
    tasks = sum(table[pid].threads for pid in members)
    if tasks > bounds.tasks:
        return f"it ran more than {bounds.tasks} processes and threads"
    if sum(table[pid].resident for pid in members) > bounds.memory:
        return f"it held more than {bounds.memory >> 20} MiB of memory"
    entries, size = _folder(directory, bounds.files)
    if entries > bounds.files:
        return f"it made more than {bounds.files} files"
    if size + _nameless(members, shared) > bounds.disk:
        return f"it wrote more than {bounds.disk >> 20} MiB"
    return ""


def _folder(directory: Path, most: int) -> tuple[int, int]:
    """Returns the number of entries in a folder, counting up to ``most`` + 1, and their bytes on disk."""
    entries = size = 0
    waiting = [os.fspath(directory)]
    while waiting and entries <= most:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                entries += 1
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                if entries > most:
                    break
    return entries, size


def _nameless(members: set[int], shared: int) -> int:
    """Returns the bytes of open files that are deleted or never had a name (``memfd``); each counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in members:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  (numbers again)
                with contextlib.suppress(OSError):
                    found = os.stat(f"/proc/{pid}/fd/{fd}")  # noqa: PTH116  (nor here)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_ino != shared:
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1024)
    finally:
        os.close(fd)
