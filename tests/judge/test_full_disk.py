"""On a full disk compilers fail, and write half a file: that is never held against a candidate."""

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelllm_judge.findings import Decision, Findings, OutOfTime, WorkerKilled, outcome_of
from kernelllm_judge.isolation import scratch
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.isolation.processes import ResourceBounds
from kernelllm_judge.supervisor import ForkServer
from kernelllm_judge.worker.server import Server, WorkerRecord
from kernelllm_judge.workers import Workers, _decided

WORDS = "; No space left on device"


@pytest.fixture
def crowded(monkeypatch):
    """Every disk counts as full in this process."""
    monkeypatch.setattr(scratch, "FULL", 1 << 62)


def test_a_disk_is_full_where_it_counts_its_blocks_and_has_none_left(tmp_path, monkeypatch):
    assert not scratch.is_full(tmp_path)
    assert not scratch.is_full(tmp_path / "missing")
    monkeypatch.setattr(scratch, "FULL", 1 << 62)
    assert scratch.is_full(tmp_path)
    assert not scratch.is_full(Path("/proc"))  # which has no blocks to be full of


def test_a_disk_is_full_where_no_more_files_can_be_made(tmp_path, monkeypatch):
    files = os.statvfs("/dev/shm")
    assert files.f_files
    monkeypatch.setattr(scratch, "FEW", files.f_favail + 1_000_000)
    assert scratch.is_full(Path("/dev/shm"))


def ended(decision, *, on_full_disk):
    decision.on_full_disk = on_full_disk

    return outcome_of(decision, Findings({}))


@pytest.mark.parametrize(
    "decision",
    [
        Decision("rejected", "run", "it fails", "run"),
        Decision("rejected", "compile", "it fails", "compile"),
        Decision("rejected", "load", "it fails", "load"),
        OutOfTime("it fails"),
        WorkerKilled("it fails"),
    ],
    ids=["run", "compile", "load", "time", "signal"],
)
def test_what_fails_on_a_full_disk_is_inconclusive(decision):
    outcome = ended(decision, on_full_disk=True)
    assert (outcome.verdict, outcome.reason) == ("inconclusive", f"it fails{WORDS}")
    assert outcome.process_lost is isinstance(decision, WorkerKilled)
    assert ended(decision, on_full_disk=False).verdict == "rejected"


def test_wrong_numbers_on_a_full_disk_are_wrong():
    outcome = ended(Decision("rejected", "correctness", "it is off", "values"), on_full_disk=True)
    assert (outcome.verdict, outcome.reason) == ("rejected", "it is off")


@pytest.mark.parametrize("named", ["[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"])
def test_an_error_that_names_a_full_disk_is_inconclusive(named):
    outcome = ended(Decision("rejected", "run", named, "run"), on_full_disk=True)
    assert (outcome.verdict, outcome.reason) == ("inconclusive", named)


def test_words_alone_excuse_no_wrong_numbers():
    named = Decision("rejected", "correctness", "No space left on device", "values")
    assert ended(named, on_full_disk=False).verdict == "rejected"


@pytest.mark.parametrize("full", [True, False])
def test_a_decision_keeps_what_was_noted_for_the_worker_that_it_is_about(full):
    def body(worker, decision):
        with _decided(worker, Findings({})):
            raise decision

    about, other = (SimpleNamespace(on_full_disk=lambda answer=answer: answer) for answer in (full, not full))
    decision = Decision("rejected", "compile", "it fails", "compile")
    for worker in (about, other):
        with pytest.raises(Decision):
            body(worker, decision)
    assert decision.on_full_disk is full


def test_the_server_reports_during_which_workers_the_disk_was_full(tmp_path, crowded, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    isolation = probe_isolation("cpu")
    with ours, theirs:
        server = Server(theirs, isolation, "")
        server._workers = {os.getpid(): WorkerRecord(7, tmp_path, -1, ResourceBounds())}
        server._enforce_bounds()
        message = json.loads(ours.recv(4096))
    assert message == {"disk full": [7]}
    supervisor = ForkServer("interpret", isolation)
    supervisor._handle_message(message)
    monkeypatch.undo()
    assert supervisor._was_on_full_disk(7)
    assert not supervisor._was_on_full_disk(8)


def test_a_worker_that_fails_while_the_disk_is_full_says_so(crowded):
    server = ForkServer("interpret", probe_isolation("cpu"))
    workers = Workers(server, torch.device("cpu"), 20.0)
    source = "raise ValueError('no')"
    try:
        with pytest.raises(Decision, match="no") as caught, workers.loaded(source, None, Findings({})):
            pass
    finally:
        server.close()
    assert caught.value.on_full_disk
