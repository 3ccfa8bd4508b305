"""Workers without the static check: what they may try, and what is left afterwards."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import wait_until

from kernelllm_judge.findings import Decision
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.supervisor import ForkServer, start_together
from kernelllm_judge.workers import make_ready

FORWARD = "\ndef forward(self):\n    pass\n"


@pytest.fixture(scope="module")
def server():
    os.environ["KERNELLLM_TEST_TOKEN"] = "secret"
    server = ForkServer("interpret", probe_isolation("cpu"))
    yield server
    server.close()
    del os.environ["KERNELLLM_TEST_TOKEN"]


def load(server, source, seconds=20.0):
    with server.worker(seconds) as worker:
        return worker.request("load", source=source + FORWARD)


def wait_until_gone(path):
    wait_until(lambda: not path.exists())


def test_a_machine_without_cuda_is_not_the_candidates_fault(server):
    with server.worker(20.0) as worker, pytest.raises(Decision, match="could not start CUDA") as caught:
        make_ready(worker, 0.5)
    assert caught.value.verdict == "inconclusive"


def test_an_honest_module_loads(server):
    assert load(server, "import torch") == {"ok": True}


def test_an_error_names_the_candidates_line(server):
    reply = load(server, "\n\nraise ValueError('no')")
    assert reply["error"] == {"type": "ValueError", "message": "no", "line": 3}


@pytest.mark.parametrize(
    ("source", "how"),
    [
        ("import os; os._exit(0)", "exited with status 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "signal 40"),
    ],
)
def test_a_death_is_reported_in_words(server, source, how):
    with pytest.raises(WorkerDied, match=how):
        load(server, source)


def test_a_hang_ends_at_the_deadline(server):
    with pytest.raises(WorkerDied, match="deadline") as caught:
        load(server, "while True: pass", seconds=1.0)
    assert caught.value.hung


def test_floods_of_output_go_nowhere(server):
    assert load(
        server, "import sys\nfor _ in range(50): print('x' * 1_000_000)\nsys.stderr.write('y' * 1000)"
    ) == {"ok": True}


def test_secrets_of_the_environment_stay_outside(server):
    reply = load(server, "import os\nraise ValueError(sorted(os.environ))")
    assert "KERNELLLM_TEST_TOKEN" not in reply["error"]["message"]
    assert "PATH" in reply["error"]["message"]


def test_children_end_with_their_worker_even_in_other_sessions(server):
    source = "import os, subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nraise ValueError(p.pid)"
    pid = int(load(server, source)["error"]["message"])
    wait_until_gone(Path(f"/proc/{pid}"))


def test_a_huge_file_cannot_be_written(server):
    source = "with open('big', 'wb') as f:\n    f.seek(3 << 30)\n    f.write(b'x')"
    assert "File too large" in load(server, source)["error"]["message"]


def test_the_scratch_folder_is_gone_afterwards(server):
    reply = load(server, "import os\nraise ValueError(os.getcwd())")
    wait_until_gone(Path(reply["error"]["message"]))


def test_workers_run_side_by_side(server):
    with server.worker(20.0) as one, server.worker(20.0) as two:
        assert one.request("load", source="import torch" + FORWARD) == {"ok": True}
        assert two.request("load", source="import torch" + FORWARD) == {"ok": True}


def test_the_server_ends_with_close():
    server = ForkServer("interpret", probe_isolation("cpu"))
    with server.worker(20.0) as worker:
        worker.request("load", source=FORWARD)
    pid = server.pid
    server.close()
    wait_until_gone(Path(f"/proc/{pid}"))


def test_servers_that_share_a_process_are_closed_one_by_one():
    interprets, compiles = servers = [
        ForkServer(mode, probe_isolation("cpu"), "sm_90") for mode in ("interpret", "compile")
    ]
    start_together(servers)
    assert interprets._launched is compiles._launched
    asks = "import os\nraise ValueError(os.environ['TRITON_INTERPRET'], os.environ['HOME'])"
    said = [load(server, asks)["error"]["message"] for server in servers]
    assert [text[:5] for text in said] == ["('1',", "('0',"]
    folder = interprets._scratch
    interprets.close()
    assert not folder.exists()
    assert load(compiles, "import torch") == {"ok": True}
    pids = compiles.pid, compiles._launched._forked.number()
    compiles.close()
    for pid in pids:
        wait_until_gone(Path(f"/proc/{pid}"))
    start_together(servers)
    assert load(interprets, "import torch") == {"ok": True}
    for server in servers:
        server.close()


def test_a_server_that_was_killed_is_started_again():
    server = ForkServer("interpret", probe_isolation("cpu"))
    assert load(server, "import torch") == {"ok": True}
    first = server.pid
    os.kill(first, signal.SIGKILL)
    server._listener.join(20.0)
    assert load(server, "import torch") == {"ok": True}
    assert server.pid != first
    server.close()


def test_a_control_channel_that_says_nonsense_is_named_and_ends_the_server():
    server = ForkServer("interpret", probe_isolation("cpu"))
    with server.worker(20.0):
        control = server._control
    server._control, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = threading.Thread(target=server._listen)
    listener.start()
    ours.send(b'{"odd": 1}')
    listener.join(20.0)
    with pytest.raises(ServerFailed, match="odd"), server.worker(20.0):
        pass
    server._control.close()
    server._control = control
    server.close()


@pytest.mark.parametrize("source", ["import os; os._exit(3)", "pass"], ids=["ended early", "ended when left"])
def test_what_a_worker_used_is_given_back_when_it_is_left_and_no_longer_exists(server, source):
    gone = threading.Event()
    with server.worker(20.0, on_exit=gone.set) as worker:
        with contextlib.suppress(WorkerDied):
            worker.request("load", source=source + FORWARD)
        assert not gone.is_set()
    assert gone.wait(10.0)


def test_what_a_worker_used_is_given_back_once_though_its_server_was_killed():
    calls = []
    server = ForkServer("interpret", probe_isolation("cpu"))
    with server.worker(20.0, on_exit=lambda: calls.append("gone")) as worker:
        assert worker.request("load", source=FORWARD) == {"ok": True}
        server._launched.kill()
    server.close()
    server.close()
    assert calls == ["gone"]


def test_what_a_worker_was_to_use_is_given_back_though_its_server_never_started(monkeypatch):
    calls = []
    server = ForkServer("interpret", probe_isolation("cpu"))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError), server.worker(20.0, on_exit=lambda: calls.append("gone")):
        pass
    server.close()
    assert calls == ["gone"]
    assert not server._scratch.exists()


@pytest.mark.parametrize("unread", [False, True])
def test_nothing_is_left_of_a_judge_that_was_killed(tmp_path, unread):
    """Also not where the judge had no time to read that its worker ended."""
    source = """
import os, sys
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.supervisor import ForkServer
with ForkServer("interpret", probe_isolation("cpu")).worker(60.0) as worker:
    reply = worker.request("load", source="import os\\nraise ValueError(os.getpid())\\ndef forward(self): pass")
    print(reply["error"]["message"], flush=True)
    sys.stdin.read()
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    judge = subprocess.Popen(
        [sys.executable, "-c", source],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert judge.stdin and judge.stdout
    with judge.stdin, judge.stdout:
        worker = int(judge.stdout.readline())
        if unread:
            judge.send_signal(signal.SIGSTOP)
            os.kill(worker, signal.SIGKILL)
            wait_until_gone(Path("/proc") / str(worker))
        judge.kill()
    judge.wait()
    wait_until_gone(Path("/proc") / str(worker))
    wait_until(lambda: not list(tmp_path.iterdir()))
