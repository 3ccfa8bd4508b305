"""Installs a system call filter (``man 2 seccomp``) that refuses calls which no kernel module needs.

Standard library only, no root. The filter lists what is refused; calls newer than Linux 6.6 fail as unknown.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.isolation.landlock import PR_SET_NO_NEW_PRIVS, checked, load_libc

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_RET_ALLOW, _RET_ERRNO, _RET_KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LAST_KNOWN = 450  # 32-bit x86 calls of the x32 kind, which start at 1 << 30, are beyond it as well
_NAMESPACES = 0x7E020080  # the CLONE_NEW* flags: time, mount, cgroup, uts, ipc, user, pid, net
_CLONE3 = 435


def _numbers(table: str) -> dict[str, tuple[int | None, int | None]]:
    """Reads names of calls, each with its numbers on x86_64 and aarch64; ``-`` where there is no such call."""
    words = table.split()
    x86, arm = ([None if word == "-" else int(word) for word in words[i::3]] for i in (1, 2))
    return dict(zip(words[::3], zip(x86, arm, strict=True), strict=True))


_REFUSED = _numbers(
    # other processes: their memory, descriptors, signals, limits and priorities
    "ptrace 101 117  process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440 "
    "process_mrelease 448 448  pidfd_getfd 438 438  pidfd_send_signal 424 424  kcmp 312 272 "
    "rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240  tkill 200 130  setpriority 141 140 "
    "ioprio_set 251 30  migrate_pages 256 238  move_pages 279 239 "
    # what Landlock leaves open: modes, owners, times and attributes of files, and watching them
    "chmod 90 -  fchmod 91 52  fchmodat 268 53  chown 92 -  fchown 93 55  lchown 94 -  fchownat 260 54 "
    "utime 132 -  utimes 235 -  futimesat 261 -  utimensat 280 88  setxattr 188 5  lsetxattr 189 6 "
    "fsetxattr 190 7  removexattr 197 14  lremovexattr 198 15  fremovexattr 199 16 "
    "inotify_add_watch 254 27  fanotify_init 300 262  name_to_handle_at 303 264 "
    "open_by_handle_at 304 265 "
    # channels to other processes: sockets with a name, System V and POSIX queues, the user's keys
    "connect 42 203  shmget 29 194  shmat 30 196  shmctl 31 195  msgget 68 186  semget 64 190 "
    "mq_open 240 180  mq_unlink 241 181  add_key 248 217  request_key 249 218  keyctl 250 219 "
    # ways around a filter, and parts of the kernel with a history
    "io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427  bpf 321 280 "
    "perf_event_open 298 241  userfaultfd 323 282  modify_ldt 154 -  personality 135 92 "
    # the machine itself
    "unshare 272 97  setns 308 268  mount 165 40  umount2 166 39  pivot_root 155 41  chroot 161 51 "
    "open_tree 428 428  move_mount 429 429  fsopen 430 430  fsconfig 431 431  fsmount 432 432 "
    "fspick 433 433  mount_setattr 442 442  quotactl 179 60  quotactl_fd 443 443  acct 163 89 "
    "swapon 167 224  swapoff 168 225  reboot 169 142  init_module 175 105  finit_module 313 273 "
    "delete_module 176 106  kexec_load 246 104  kexec_file_load 320 294  settimeofday 164 170 "
    "clock_settime 227 112  adjtimex 159 171  clock_adjtime 305 266  sethostname 170 161 "
    "setdomainname 171 162  iopl 172 -  ioperm 173 -  syslog 103 116  vhangup 153 58 "
)
"""Calls that are always refused."""

_BY_ARGUMENT = _numbers(
    "socket 41 198  socketpair 53 199  clone 56 220  prctl 157 167  fcntl 72 25  prlimit64 302 261 "
    "sched_setaffinity 203 122  sched_setparam 142 118  sched_setscheduler 144 119 "
    "sched_setattr 314 274  memfd_create 319 279  truncate 76 45  kill 62 129  tgkill 234 131 "
)
"""Calls that are refused for some arguments or on some machines."""

NUMBERS = _REFUSED | _BY_ARGUMENT
"""Call numbers on x86_64 and aarch64, by name; None where there is no such call."""


@dataclass(frozen=True)
class _Rule:
    """Refuses one system call: always, or if ``argument & mask`` is in ``when`` or not in ``unless``."""

    name: str
    argument: int = -1
    mask: int = 0xFFFFFFFF
    unless: tuple[int, ...] = ()
    when: tuple[int, ...] = ()


def available() -> bool:
    """Whether this machine can filter system calls and their numbers are known for its processor."""
    machine = platform.machine()
    if machine not in _SECCOMP or struct.calcsize("P") != 8:
        return False
    action = ctypes.c_uint32(_RET_ERRNO)
    return bool(load_libc().syscall(_SECCOMP[machine], _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0)


def confine(*, unix_sockets: bool, memfd: bool, signals: bool, truncate: bool) -> None:
    """Refuse, for this thread and all that it starts, calls that affect anything outside the process.

    Args:
        unix_sockets: allow Unix stream sockets; connecting them is refused all the same.
        memfd: allow memory files.
        signals: allow signals to other processes, because Landlock limits them.
        truncate: allow truncating files by name, because Landlock limits it.

    Raises:
        OSError: the kernel refuses the filter.
    """
    machine = platform.machine()
    libc = load_libc()
    rules = [_Rule(name) for name in _REFUSED]
    rules += _arguments(unix_sockets=unix_sockets, memfd=memfd, signals=signals, truncate=truncate)
    program = _assemble(rules, _COLUMN[machine], _AUDIT_ARCH[machine])
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    fprog = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "the system call filter")
    loaded = ctypes.create_string_buffer(fprog, len(fprog))
    checked(libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, 0, loaded), "the system call filter")


def _arguments(*, unix_sockets: bool, memfd: bool, signals: bool, truncate: bool) -> list[_Rule]:
    """Returns the rules that depend on an argument or on the machine."""
    # A datagram socket reaches any name without connecting.
    connected = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    rules = [
        _Rule("socket", 0, unless=(socket.AF_UNIX,)),
        _Rule("socket", 1, 0xF, unless=connected),
        _Rule("socketpair", 1, 0xF, unless=connected),
        _Rule("clone", 0, _NAMESPACES, unless=(0,)),
        _Rule("prctl", 0, when=(_PR_SET_PDEATHSIG, _PR_SET_PTRACER)),
        _Rule("fcntl", 1, when=(8, 15)),  # F_SETOWN, F_SETOWN_EX: signals by way of a descriptor
        _Rule("prlimit64", 0, unless=(0,)),
        *(_Rule(name, 0, unless=(0,)) for name in _BY_ARGUMENT if name.startswith("sched_")),
    ]
    if not unix_sockets:
        rules.append(_Rule("socket"))
    if not memfd:
        rules.append(_Rule("memfd_create"))
    if not truncate:
        rules.append(_Rule("truncate"))
    if not signals:
        own = os.getpid()
        rules.append(_Rule("kill", 0, unless=(0, own, -own & 0xFFFFFFFF)))
        rules.append(_Rule("tgkill", 0, unless=(own,)))
    return rules


def _assemble(rules: Iterable[_Rule], column: int, arch: int) -> list[bytes]:
    """Returns the filter as BPF instructions.

    They read ``struct seccomp_data``: the number at 0, the architecture at 4, the arguments at 16.
    """
    load_number = _instruction(0x20, 0)
    program = [
        _instruction(0x20, 4),
        _instruction(0x15, arch, 1, 0),
        _instruction(0x06, _RET_KILL),
        load_number,
        # On ENOSYS libraries assume an older kernel and use another call. A filter cannot read clone3's
        # flags.
        _instruction(0x25, _LAST_KNOWN, 1, 0),
        _instruction(0x15, _CLONE3, 0, 1),
        _instruction(0x06, _RET_ERRNO | errno.ENOSYS),
    ]
    refuse = _instruction(0x06, _RET_ERRNO | errno.EPERM)
    for rule in rules:
        number = NUMBERS[rule.name][column]
        if number is None:
            continue
        body = [refuse]
        if rule.argument >= 0:
            values = rule.unless or rule.when
            test = [_instruction(0x20, 16 + 8 * rule.argument), _instruction(0x54, rule.mask)]
            for i, value in enumerate(values):
                left = len(values) - 1 - i
                # Jump behind the refusal, or to the refusal.
                test.append(_instruction(0x15, value, left + 1 if rule.unless else left, _miss(rule, left)))
            body = [*test, refuse, load_number]
        program += [_instruction(0x15, number, 0, len(body)), *body]
    return [*program, _instruction(0x06, _RET_ALLOW)]


def _miss(rule: _Rule, left: int) -> int:
    """Returns the jump if a value does not match: to the next value, the refusal, or past the refusal."""
    return 1 if rule.when and left == 0 else 0


def _instruction(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, jump_true, jump_false, k & 0xFFFFFFFF)
