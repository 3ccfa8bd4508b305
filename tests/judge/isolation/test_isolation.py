"""Attacks on the machine, from inside a real worker. Each is also run with every measure off, to show that it is one."""

import ctypes
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from attacks import CALLS, FILES, FORWARD, attempt, need, set_stage
from waiting import wait_until

from kernelllm_judge.core.errors import ConfigError
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.isolation import scratch, seccomp
from kernelllm_judge.isolation.isolation import Isolation, IsolationError, probe_isolation
from kernelllm_judge.isolation.processes import ResourceBounds, descendants, process_table
from kernelllm_judge.supervisor import ForkServer
from pytest_kernelllm.config.settings import load_settings

REFUSALS = (
    "[Errno 1] ",
    "[Errno 2] ",
    "[Errno 13] ",
    "[Errno 18] ",
)  # EPERM, ENOENT, EACCES, and EXDEV for links
SMALL = ResourceBounds(tasks=48, memory=1 << 30, disk=32 << 20, files=200)


@pytest.fixture(scope="module")
def stage():
    with set_stage() as stage:
        yield stage


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "a secret of the user's")
        server = ForkServer("interpret", probe_isolation("cpu"), bounds=SMALL)
        yield server
        server.close()


@pytest.fixture(scope="module", params=["as here", "as for a GPU"])
def any_server(request, server):
    """Workers for a GPU may make sockets, and without root they share the host's network."""
    if request.param == "as here":
        yield server
        return
    isolation = replace(server.isolation, unshare=0, gpu=True, unix_sockets=True, memfd=True)
    other = ForkServer("interpret", isolation, bounds=SMALL)
    yield other
    other.close()


@pytest.fixture(scope="module")
def bare():
    server = ForkServer("interpret", Isolation(capabilities=False, memfd=True, unix_sockets=True))
    yield server
    server.close()


def load(server, source, seconds=30.0):
    with server.worker(seconds) as worker:
        return worker.request("load", source=source + FORWARD)


def run(server, source):
    """What the module raised on purpose."""
    return load(server, source)["error"]["message"]


def gone(pid):
    return lambda: not Path(f"/proc/{pid}").exists()


def refused(server, stage, source, address=0):
    before = {path: path.read_bytes() for path in stage.home.rglob("*") if path.is_file()}
    error = attempt(server, stage, source, address)
    assert error is not None, "it succeeded"
    assert error["message"].startswith(REFUSALS), error
    assert {path: path.read_bytes() for path in stage.home.rglob("*") if path.is_file()} == before
    assert not stage.received
    return error


@pytest.mark.parametrize("name", FILES)
def test_a_worker_cannot_reach_a_file(server, stage, name):
    need(files=True)
    refused(server, stage, FILES[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_worker_cannot_call(any_server, stage, name):
    need(files=True, calls=True)
    here = ctypes.create_string_buffer(8)
    refused(any_server, stage, CALLS[name], ctypes.addressof(here))


@pytest.mark.parametrize("name", [*FILES, *CALLS])
def test_without_isolation_the_attack_succeeds(bare, name):
    if name == "traces the judge" and Path("/proc/sys/kernel/yama/ptrace_scope").exists() and os.getuid():
        pytest.skip("Yama keeps users from tracing each other's processes here")
    if name == "writes to its own compiler" and os.getuid():
        pytest.skip("torch belongs to root here")
    here = ctypes.create_string_buffer(8)
    with set_stage() as stage:
        assert attempt(bare, stage, {**FILES, **CALLS}[name], ctypes.addressof(here)) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can read these files in the first place")
@pytest.mark.parametrize("path", ["/etc/shadow", "/proc/kcore", "/proc/1/environ", "/dev/mem", "/dev/kmsg"])
def test_root_reads_no_more_than_others(server, stage, path):
    need(files=True)
    if not Path(path).exists():
        pytest.skip(f"there is no {path} here")
    refused(server, stage, f"open('{path}', 'rb').read(1)")


@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to give up")
def test_root_keeps_no_capability_but_to_read(server):
    status = run(server, "raise ValueError([l for l in open('/proc/self/status') if l.startswith('Cap')])")
    held = {name: int(value, 16) for name, value in re.findall(r"Cap(\w+):\\t(\w+)", status)}
    assert held["Eff"] == held["Prm"] == held["Bnd"] == 1 << 2
    assert held["Inh"] == held["Amb"] == 0


def test_no_secret_is_in_the_environment(server):
    for source in ("str(dict(os.environ))", "open('/proc/self/environ').read()"):
        assert "secret" not in run(server, f"import os\nraise ValueError({source})")


def test_only_the_channel_is_open(server):
    source = "import os\nraise ValueError([os.readlink(f'/proc/self/fd/{n}') for n in range(64) if os.path.islink(f'/proc/self/fd/{n}')])"
    names = json.loads(run(server, source).replace("'", '"'))
    others = [name for name in names if name != "/dev/null" and not name.startswith("/proc/")]
    assert len(others) == 1
    assert others[0].startswith("socket:")


def test_a_network_of_its_own_has_nothing_in_it(server):
    if not server.isolation.unshare:
        pytest.skip("this machine gives no network namespaces")
    other = run(server, "import os\nraise ValueError(os.readlink('/proc/self/ns/net'))")
    assert other != str(Path("/proc/self/ns/net").readlink())


@pytest.mark.parametrize("flags", [0x10000000, 0x40000000, 0x00020000])
def test_no_new_namespaces(server, flags):
    need(calls=True)
    source = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nraise ValueError(libc.unshare({flags}), libc.syscall(56, {flags} | 17, 0, 0, 0, 0), libc.syscall(435, 0, 0), ctypes.get_errno())"
    assert run(server, source) == "(-1, -1, -1, 38)"


def test_its_own_folder_is_its_to_use(server):
    source = "import os, shutil\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')\nos.rename('a/b/c', 'c')\nos.symlink('c', 'd')\nos.truncate('c', 0)\nshutil.rmtree('a')\nos.unlink('c')"
    assert load(server, source) == {"ok": True}


def test_a_c_compiler_and_python_run_as_children(server):
    source = "import ctypes, subprocess, sys\nopen('a.c', 'w').write('#include <stdio.h>\\nint seven(void) { return 7; }')\nsubprocess.run(['gcc', '-shared', '-fPIC', '-o', 'a.so', 'a.c'], check=True)\nsubprocess.run([sys.executable, '-c', 'import numpy'], check=True)\nraise ValueError(ctypes.CDLL('./a.so').seven())"
    assert run(server, source) == "7"


def test_modules_not_loaded_yet_can_be_imported(server):
    assert load(server, "import sympy, torch._dynamo, torch._inductor.utils, numpy.fft, sqlite3") == {
        "ok": True
    }


def test_an_interpreted_kernel_runs(server):
    source = "import torch, triton\nimport triton.language as tl\n@triton.jit\ndef k(p, n: tl.constexpr):\n    o = tl.arange(0, n)\n    tl.store(p + o, o)\nx = torch.zeros(8, dtype=torch.int32)\nk[(1,)](x, 8)\nraise ValueError(x.tolist())"
    assert run(server, source) == str(list(range(8)))


def test_a_kernel_is_compiled_to_machine_code():
    source = "import triton\nimport triton.language as tl\nfrom triton.backends.compiler import GPUTarget\nfrom triton.compiler import ASTSource\n@triton.jit\ndef k(p, n: tl.constexpr):\n    o = tl.arange(0, n)\n    tl.store(p + o, o)\nc = triton.compile(ASTSource(k, {'p': '*i32'}, {'n': 8}), target=GPUTarget('cuda', 90, 32))\nraise ValueError(c.asm['cubin'][:4])"
    server = ForkServer("compile", probe_isolation("cpu"), "sm_90")
    try:
        assert run(server, source) == "b'\\x7fELF'"
    finally:
        server.close()


# ---------------------------------------------------------------------- processes


def test_a_daemon_ends_although_its_worker_lives_on(server):
    source = "import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.write(w, str(os.getpid()).encode())\n        while True: time.sleep(60)\n    os._exit(0)\nos.wait()\nraise ValueError(os.read(r, 20).decode())"
    with server.worker(30.0) as worker:
        pid = int(worker.request("load", source=source + FORWARD)["error"]["message"])
        wait_until(gone(pid))
        assert worker.request("load", source=FORWARD) == {"ok": True}


def test_a_worker_that_exits_takes_its_children_along(server):
    source = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    while True: time.sleep(60)\nos._exit(0)"
    )
    with pytest.raises(WorkerDied, match="status 0"):
        load(server, source)
    wait_until(lambda: not children(server))


def test_a_fork_bomb_is_ended_and_the_server_serves_on(server):
    with pytest.raises(WorkerDied, match="it was ended because"):
        # The bomb slows down whoever is to end it.
        load(
            server,
            "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
            120.0,
        )
    assert load(server, "import torch") == {"ok": True}
    wait_until(lambda: not children(server))


def test_threads_count_as_well(server):
    source = "import threading\nstop = threading.Event()\nfor _ in range(100): threading.Thread(target=stop.wait, daemon=True).start()\nstop.wait()"
    try:
        # Where root does not count for the kernel's own bound.
        assert "can't start new thread" in load(server, source)["error"]["message"]
    except WorkerDied as error:
        assert "processes and threads" in str(error)


def children(server):
    """All that hangs below a fork server: orphans come back to it."""
    return descendants([server.pid], process_table()) - {server.pid}


# ---------------------------------------------------------------------- memory and disk


def test_memory_is_bounded(server):
    source = "hold = []\nwhile True: hold.append(bytearray(b'x' * (1 << 26)))"
    with pytest.raises(WorkerDied, match="1024 MiB of memory"):
        load(server, source)


@pytest.mark.parametrize(
    "source",
    [
        "for n in range(9): open(f'{n}', 'wb').write(bytes(8 << 20))",
        "import os\nkept = []\nfor n in range(9):\n    kept.append(open('f', 'wb', 0))\n    kept[-1].write(bytes(8 << 20))\n    os.unlink('f')",
    ],
    ids=["with names", "deleted and open"],
)
def test_disk_is_bounded(server, source):
    with pytest.raises(WorkerDied, match="wrote more than 32 MiB"):
        load(server, source + "\nimport time\nwhile True: time.sleep(60)")


def test_the_number_of_files_is_bounded(server):
    with pytest.raises(WorkerDied, match="more than 200 files"):
        load(server, "import time\nfor n in range(500): open(f'{n}', 'w')\nwhile True: time.sleep(60)")


def test_no_folder_is_too_deep_to_be_removed(server):
    source = "import os\nwhere = os.getcwd()\nfor n in range(150):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\nopen('f', 'w')\nos.mkdir('closed', 0)\nraise ValueError(where)"
    folder = Path(run(server, source))
    wait_until(lambda: not folder.exists())


def test_removing_follows_no_link(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "scratch" / "inner").mkdir(parents=True)
    for folder in ("scratch", "scratch/inner"):
        (tmp_path / folder / "link").symlink_to(tmp_path / "kept")
    scratch.remove(tmp_path / "scratch")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()


# ---------------------------------------------------------------------- what is reported about it


FULL = Isolation(landlock=7, seccomp=True)


def test_the_level_says_what_is_in_force_and_what_is_missing():
    assert FULL.level.startswith("full: own process group, clean environment, resource limits, no network")
    assert "Landlock 7" in FULL.level
    partial = replace(FULL, landlock=1, seccomp=False)
    assert partial.level.startswith("partial: ")
    assert "no network" not in partial.level
    assert "missing Landlock 3 for files (Linux 6.2" in partial.level


@pytest.mark.parametrize(
    ("isolation", "words"),
    [(replace(FULL, landlock=0), "Landlock 3"), (replace(FULL, seccomp=False), "system call filter")],
)
def test_strict_refuses_less_than_full_isolation(isolation, words):
    assert isolation.at_least("best") is isolation
    with pytest.raises(IsolationError, match=words):
        isolation.at_least("strict")
    assert FULL.at_least("strict") is FULL


def test_a_server_that_cannot_seal_says_so():
    # No machine has such a namespace.
    server = ForkServer("interpret", Isolation(unshare=1))
    with pytest.raises(RuntimeError, match="cannot be isolated"), server.worker(5.0):
        pass
    server.close()


def test_the_setting_comes_from_all_the_usual_places(tmp_path):
    assert load_settings(tmp_path, environ={}).isolation == "best"
    (tmp_path / "pyproject.toml").write_text('[tool.kernelllm]\nisolation = "strict"\n')
    assert load_settings(tmp_path, environ={}).isolation == "strict"
    assert load_settings(tmp_path, environ={"KERNELLLM_ISOLATION": "best"}).isolation == "best"
    assert (
        load_settings(tmp_path, {"isolation": "strict"}, {"KERNELLLM_ISOLATION": "best"}).isolation
        == "strict"
    )
    with pytest.raises(ConfigError, match="`isolation` cannot be 'none'; expected best or strict"):
        load_settings(tmp_path, {"isolation": "none"}, {})


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
    ids=["x86_64", "aarch64"],
)
def test_the_numbers_of_system_calls_are_the_kernels(column, header):
    if not Path(header).exists():
        pytest.skip(f"there is no {header} here")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", Path(header).read_text()))
    for name, numbers in seccomp.NUMBERS.items():
        assert known.get(name) == (str(numbers[column]) if numbers[column] is not None else None), name
