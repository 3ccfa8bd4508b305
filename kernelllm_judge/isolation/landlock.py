"""Confines a process and its children to named files by Landlock (``man 7 landlock``).

Standard library only; three system calls, no root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
PR_SET_NO_NEW_PRIVS = 38
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
OWN = READ | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER

_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_ALL_FS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_ALL_TCP = 0b11  # bind, connect
_ALL_SCOPES = 0b11  # abstract Unix sockets, signals


@dataclass(frozen=True)
class Allowed:
    """A file, or a folder with its contents, and the access that is allowed."""

    path: str
    access: int
    """``READ``, ``RUN``, ``DEVICE`` or ``OWN``."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """Returns the kernel's Landlock version, 0 if it has none.

    Version 3 limits truncation, 4 TCP, 5 ioctl, 6 signals.
    """
    found = load_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(int(found), 0)


def confine(allowed: Iterable[Allowed], version: int) -> None:
    """Confines this thread and all that it starts to ``allowed`` files, without TCP or signals to others.

    Paths that do not exist or that this user cannot open are skipped.

    Args:
        allowed: the files that stay reachable; of several entries for a file, the most permissive one counts.
        version: as returned by ``abi``.

    Raises:
        OSError: the kernel refuses.
    """
    libc = load_libc()
    rights = _ALL_FS[max(known for known in _ALL_FS if known <= version)]
    attr = _RulesetAttr(rights, _ALL_TCP if version >= 4 else 0, _ALL_SCOPES if version >= 6 else 0)
    ruleset = checked(
        libc.syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(ctypes.sizeof(attr)), 0),
        "Landlock's ruleset",
    )
    try:
        for entry in allowed:
            _allow(libc, ruleset, entry, rights)
        checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "Landlock's no new privileges")
        checked(libc.syscall(_RESTRICT_SELF, ruleset, 0), "Landlock's restriction")
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, entry: Allowed, rights: int) -> None:
    try:
        fd = os.open(entry.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        access = entry.access & rights
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        attr = _PathAttr(access, fd)
        result = libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(attr), 0)
        checked(result, f"Landlock's rule for {Path(entry.path).name}")
    finally:
        os.close(fd)


def load_libc() -> ctypes.CDLL:
    """Returns the C library, with ``errno`` kept."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Returns the result of a system call.

    Raises:
        OSError: it failed; the text names ``what`` it was for.
    """
    if result < 0:
        code = ctypes.get_errno() or errno.EPERM
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
