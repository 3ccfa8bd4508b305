"""The boundary itself, with the screen out of the way: what a worker may try, and what is left afterwards."""

import os
import time
from pathlib import Path

import pytest

from pytest_kernelllm.judge.supervisor import ForkServer, WorkerDied, probe_isolation

FORWARD = "\ndef forward(self):\n    pass\n"


@pytest.fixture(scope="module")
def server():
    os.environ["KERNELLLM_TEST_TOKEN"] = "secret"
    server = ForkServer("interpret", probe_isolation("interpret"))
    yield server
    server.close()
    del os.environ["KERNELLLM_TEST_TOKEN"]


def load(server, source, seconds=20.0):
    with server.worker(seconds) as worker:
        return worker.ask("load", source=source + FORWARD)


def wait_until_gone(pid, seconds=10.0):
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, f"process {pid} is still there"
        os.sched_yield()


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


def test_the_network_is_out_of_reach(server):
    if not server.isolation.unshare:
        pytest.skip("this machine gives no network namespaces")
    reply = load(server, "import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=1)")
    assert "unreachable" in reply["error"]["message"]


def test_children_end_with_their_worker_even_in_other_sessions(server):
    source = "import os, subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nraise ValueError(p.pid)"
    pid = int(load(server, source)["error"]["message"])
    wait_until_gone(pid)


def test_a_huge_file_cannot_be_written(server):
    source = "with open('big', 'wb') as f:\n    f.seek(3 << 30)\n    f.write(b'x')"
    assert "File too large" in load(server, source)["error"]["message"]


def test_the_scratch_folder_is_gone_afterwards(server):
    reply = load(server, "import os\nraise ValueError(os.getcwd())")
    assert not Path(reply["error"]["message"]).exists()


def test_workers_run_side_by_side(server):
    with server.worker(20.0) as one, server.worker(20.0) as two:
        assert one.ask("load", source="import torch" + FORWARD) == {"ok": True}
        assert two.ask("load", source="import torch" + FORWARD) == {"ok": True}


def test_the_server_ends_with_close():
    server = ForkServer("interpret", probe_isolation("interpret"))
    with server.worker(20.0) as worker:
        worker.ask("load", source=FORWARD)
    pid = server._process.pid
    server.close()
    wait_until_gone(pid)
