"""Processes that are forked from one which has imported what they need."""

import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest
from waiting import wait_until

from kernelllm_judge.forking import Forked, ForkHost, HostEnded, StartedHost

MODULE = """
import json, os, signal, sys, time

LOADED = os.getpid()


def main(argument, descriptors):
    os.write(descriptors[0], json.dumps([LOADED, os.getpid(), os.getsid(0), os.getcwd(), dict(os.environ)]).encode())
    print("words")
    if argument == "wait":
        signal.pause()
    sys.exit(argument)
"""


@pytest.fixture
def host(tmp_path):
    (tmp_path / "forked_here.py").write_text(MODULE)
    started = StartedHost(["forked_here"], dict(os.environ), [str(tmp_path), *map(os.path.abspath, sys.path)])
    yield started
    started.close()


def fork(host, argument, folder, log):
    """A process that does what ``argument`` says, and what it writes."""
    reads, writes = os.pipe()
    with Path(log).open("wb") as file:
        forked = host.fork(
            "forked_here",
            argument,
            [writes],
            environment={"ONLY": "this"},
            folder=folder,
            log=file.fileno(),
        )
    os.close(writes)
    return forked, reads


def test_a_process_has_what_was_imported_and_its_own_surroundings(host, tmp_path):
    found = []
    for code in (0, 3):
        forked, reads = fork(host, code, tmp_path, tmp_path / "log")
        with os.fdopen(reads, "rb") as pipe:
            loaded, number, session, folder, environment = json.load(pipe)
        assert forked.wait(60) and forked.code == code
        assert number == forked.number() == session != loaded
        assert folder == str(tmp_path) and environment["ONLY"] == "this" and "PATH" not in environment
        assert (tmp_path / "log").read_text() == "words\n"
        found.append(loaded)
        forked.close()
        wait_until(lambda number=number: not Path(f"/proc/{number}").exists())
    assert found[0] == found[1]


def test_its_number_is_known_while_another_thread_waits_and_stays_its_own_until_it_is_left(host, tmp_path):
    forked, reads = fork(host, "wait", tmp_path, tmp_path / "log")
    waiting = threading.Thread(target=forked.wait)
    waiting.start()
    wait_until(forked.number)
    os.read(reads, 1)
    os.kill(forked.number(), signal.SIGKILL)
    waiting.join(60)
    assert not waiting.is_alive() and forked.code == -signal.SIGKILL
    assert Path(f"/proc/{forked.number()}").exists()  # a zombie
    forked.close()
    wait_until(lambda: not Path(f"/proc/{forked.number()}").exists())
    os.close(reads)


def test_another_process_may_use_it_and_it_outlives_that(host, tmp_path):
    connection = host.connect()
    for each in (ForkHost(connection), host):
        forked, reads = fork(each, 0, tmp_path, tmp_path / "log")
        assert forked.wait(60) and forked.code == 0
        forked.close()
        os.close(reads)
        connection.close()


def test_whoever_waits_learns_that_it_was_killed(host, tmp_path):
    forked, reads = fork(host, "wait", tmp_path, tmp_path / "log")
    wait_until(forked.number)
    assert host.lives
    os.kill(host._process.pid, signal.SIGKILL)
    assert forked.wait(60) and forked.code is None
    host._process.wait()
    assert not host.lives
    with pytest.raises(HostEnded):
        fork(host, 0, tmp_path, tmp_path / "log")
    os.kill(forked.number(), signal.SIGKILL)
    os.close(reads)


def test_what_cannot_be_imported_is_its_last_word(tmp_path):
    host = StartedHost(["no_such_module"], dict(os.environ), [str(Path(__file__).parents[2])])
    host._process.wait()
    with pytest.raises(HostEnded, match="No module named 'no_such_module'"):
        fork(host, 0, tmp_path, tmp_path / "log")
    host.close()


def test_whoever_waits_hears_of_an_end_that_another_thread_read(monkeypatch):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forked = Forked(ours)
    really = select.select

    def after_another_read(*args):
        """The other thread reads between this one's look at what is known and its wait."""
        if not theirs_told:
            theirs_told.append(theirs.send(b"ended 3"))
            assert forked.number() == 0
        return really(*args[:3], 10.0)

    theirs_told = []
    monkeypatch.setattr("kernelllm_judge.forking.select.select", after_another_read)
    with theirs:
        assert forked.wait()
        assert forked.code == 3
    forked.close()
