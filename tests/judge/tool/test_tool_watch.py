"""The command judges at each save, until it is interrupted."""

import json
import signal
import subprocess
import sys
import threading

import pytest
from relu_kernels import ANSWER, REFERENCE

from kernelllm_judge.tool import watch


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A file that is watched, and how often it was found saved."""
    monkeypatch.setattr(watch, "PAUSE", 0.01)
    file = tmp_path / "kernel.py"
    found = threading.Semaphore(0)
    looks = watch.saves([file])

    def look():
        for _ in looks:
            found.release()

    threading.Thread(target=look, daemon=True).start()
    return file, found


def test_each_change_of_the_content_counts_once(saved):
    file, found = saved
    assert not found.acquire(timeout=0.2), "there is no file yet"
    file.write_text("one")
    assert found.acquire(timeout=60)
    file.touch()
    file.unlink()
    file.write_text("one")
    assert not found.acquire(timeout=0.5), "it holds the same again"
    file.write_text("two")
    assert found.acquire(timeout=60)
    assert not found.acquire(timeout=0.2)


def test_a_file_is_judged_at_each_save_by_one_process(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "answer.py").write_text(ANSWER.replace("+ 1.0", "+ 2.0"))
    command = [sys.executable, "-m", "kernelllm_judge.cli", "reference.py", "answer.py", "--device=cpu"]
    with subprocess.Popen(
        [*command, "--json", "--watch"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert json.loads(watching.stdout.readline())["verdict"] == "rejected"
        (tmp_path / "answer.py").write_text("no kernel\n")
        assert json.loads(watching.stdout.readline())["stage"] == "render"
        (tmp_path / "answer.py").write_text(ANSWER)
        assert json.loads(watching.stdout.readline())["verdict"] == "accepted"
        watching.send_signal(signal.SIGINT)
        printed, errors = watching.communicate(timeout=60)
    assert (watching.returncode, printed) == (0, "")
    assert errors == "imported\n", "the reference was loaded once, and nothing else was said"
