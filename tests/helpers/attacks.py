"""What a hostile kernel module might try against the machine, as its top-level code. Shared with tests/gpu.

Each is formatted with the names in ``stage`` and ends without an error only if it succeeded.
"""

import contextlib
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.isolation import landlock, seccomp

FORWARD = "\ndef forward(self):\n    pass\n"

CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    result = getattr(libc, name)(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""

FILES = {
    "reads a file in the home": "open('{home}/.netrc').read()",
    "lists the home": "import os; os.listdir('{home}')",
    "reads a file of the project": "open('{home}/project/layers.py').read()",
    "reads by way of a link": "import os; os.symlink('{home}/.netrc', 'link'); open('link').read()",
    "reads by way of /proc": "open('/proc/self/root{home}/.netrc').read()",
    "writes a file in the home": "open('{home}/.bashrc', 'w').write('x')",
    "appends to a file": "open('{home}/.netrc', 'a').write('x')",
    "truncates a file": "import os; os.truncate('{home}/.netrc', 0)",
    "removes a file": "import os; os.unlink('{home}/.netrc')",
    "renames a file": "import os; os.rename('{home}/.netrc', '{home}/other')",
    "moves a file in": "import os; os.rename('{home}/.netrc', 'mine')",
    "makes a hard link": "import os; os.link('{home}/.netrc', 'mine')",
    "makes a folder": "import os; os.mkdir('{home}/planted')",
    "plants a link": "import os; os.symlink('/etc/passwd', '{home}/planted')",
    "writes to another worker's folder": "open('{other}/kernel_module.py', 'w').write('x')",
    "reads another worker's folder": "open('{other}/kernel_module.py').read()",
    "lists the folder of all workers": "import os; os.listdir(os.path.dirname('{other}'))",
    "reads what the fork server says": "import os; open(os.path.dirname('{other}') + '/server.log').read()",
    "writes to its own compiler": "import torch; open(torch.__file__, 'a').close()",
    "makes shared memory with a name": "import os; open('/dev/shm/kernelllm-{judge}', 'w').close(); os.unlink('/dev/shm/kernelllm-{judge}')",
    "reads the judge's command line": "open('/proc/{judge}/cmdline').read()",
    "reads the judge's environment": "open('/proc/{judge}/environ').read()",
    "opens the judge's memory": "open('/proc/{judge}/mem', 'rb')",
    "lists the judge's descriptors": "import os; os.listdir('/proc/{judge}/fd')",
    "reads the fork server's environment": "import os; open(f'/proc/{{os.getppid()}}/environ').read()",
}

CALLS = {
    "changes a file's mode": "import os; os.chmod('{home}/.netrc', 0o777)",
    "changes a file's times": "import os; os.utime('{home}/.netrc', (0, 0))",
    "connects over TCP": "import socket; socket.create_connection(('127.0.0.1', {tcp}), timeout=5)",
    "sends over UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
    "connects to a Unix socket": "import socket; socket.socket(socket.AF_UNIX).connect('{home}/socket')",
    "connects to an abstract socket": "import socket; socket.socket(socket.AF_UNIX).connect('\\0' + '{abstract}')",
    "sends to a Unix socket": "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{home}/datagrams')",
    "sends by way of a pair": "import socket; socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', '{home}/datagrams')",
    "signals the judge": "import os; os.kill({judge}, 0)",
    "signals the fork server": "import os; os.kill(os.getppid(), 0)",
    "signals a thread of the judge": "import signal; " + CALL + "call('tgkill', {judge}, {judge}, 0)",
    "signals the judge by descriptor": "import os, signal; signal.pidfd_send_signal(os.pidfd_open({judge}), 0)",
    "traces the judge": CALL + "call('ptrace', 0x4206, {judge}, 0, 0)",
    "reads the judge's memory": CALL
    + "class V(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]\n"
    "b = ctypes.create_string_buffer(8)\n"
    "local, remote = V(ctypes.addressof(b), 8), V({address}, 8)\n"
    "call('process_vm_readv', {judge}, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)",
    "limits the judge": "import resource; resource.prlimit({judge}, resource.RLIMIT_CORE)",
    "moves the judge to other cores": "import os; os.sched_setaffinity({judge}, os.sched_getaffinity({judge}))",
    "changes the judge's priority": "import os; os.setpriority(os.PRIO_PROCESS, {judge}, os.getpriority(os.PRIO_PROCESS, {judge}))",
    "shares System V memory": CALL + "call('shmget', 0, 4096, 0o600)",
    "outlives the fork server": CALL + "call('prctl', 1, 0, 0, 0, 0)",
}


@dataclass(frozen=True)
class Stage:
    """What attacks are aimed at."""

    home: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    datagrams: socket.socket

    @property
    def received(self) -> bool:
        """Whether anything came through."""
        for sock in (self.tcp, self.unix, self.abstract):
            with contextlib.suppress(BlockingIOError):
                sock.accept()
                return True
        for sock in (self.udp, self.datagrams):
            with contextlib.suppress(BlockingIOError):
                sock.recv(1)
                return True
        return False


@contextlib.contextmanager
def set_stage():
    """A home with a secret and a project, and servers that listen."""
    with contextlib.ExitStack() as stack:
        # Not pytest's own folder: the path of a Unix socket must be short.
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelllm-home-")))
        (home / "project").mkdir()
        (home / ".netrc").write_text("password")
        (home / "project" / "layers.py").write_text("class Scale: ...")
        made = []
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"{home}/socket"),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0kernelllm-{secrets.token_hex(4)}"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, f"{home}/datagrams"),
        ):
            sock = stack.enter_context(socket.socket(family, kind))
            sock.bind(address)
            sock.setblocking(False)
            if kind == socket.SOCK_STREAM:
                sock.listen()
            made.append(sock)
        yield Stage(home, *made)


def attempt(server, stage, source, address=0):
    """Run one attack beside another worker; the error it met, None if it succeeded."""
    with server.worker(30.0) as other, server.worker(30.0) as worker:
        where = other.request("load", source="import os\nraise ValueError(os.getcwd())" + FORWARD)
        text = source.format(
            home=stage.home,
            other=where["error"]["message"],
            judge=os.getpid(),
            tcp=stage.tcp.getsockname()[1],
            udp=stage.udp.getsockname()[1],
            abstract=stage.abstract.getsockname()[1:].decode(),
            address=address,
        )
        try:
            return worker.request("load", source=text + FORWARD).get("error")
        except WorkerDied as error:
            return {"type": "WorkerDied", "message": str(error)}


def need(*, files=False, calls=False):
    """Skip where the kernel lacks what the test is about."""
    if files and landlock.abi() < 3:
        pytest.skip("this kernel has no Landlock 3 (Linux 6.2)")
    if calls and not seccomp.available():
        pytest.skip("this kernel or processor has no system call filter we know")
