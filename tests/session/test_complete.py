"""Who writes what, once: generators at work for many targets, with the store between sessions and processes."""

import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from contexts import context
from projects import GOOD, lay_out

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import CandidateId, Completion, Target
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.session.complete import CompleteStage
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.session.session import Session
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey


def target(name):
    return Target("layers.py", name, 1, name.encode().hex().ljust(64, "0"), "decorator")


A, B, C = target("A"), target("B"), target("C")


class Writer(Generator):
    """Writes its own name, the target's and the index, and remembers what it was asked for."""

    def __init__(self, name="writer", *, batched=True, on_gpu=False, distinct=99):
        self.name, self.batched, self.on_gpu = name, batched, on_gpu
        self.distinct = distinct
        self.asked = []
        self.released = 0
        self.closed = threading.Event()

    def identity(self):
        return self.name

    def generate(self, requests):
        self.asked.append([(request.target.name, request.indices) for request in requests])
        try:
            for request in requests:
                for index in request.indices:
                    if index < self.distinct:
                        yield request, self.write(request, index)
        finally:
            self.closed.set()

    def write(self, request, index):
        return Completion(self.name, index, f"{self.name} {request.target.name} {index}", "modelnew")

    def release(self):
        self.released += 1


class Targets:
    """Loads nothing, or refuses."""

    def __init__(self, load=lambda target: None):
        self.load = load

    def live(self, target):
        return object()


def make(root, samples=4, load=lambda target: None, progress=lambda text: None, announced=()):
    settings = Settings(device="cpu", samples=samples)
    stage = CompleteStage(Context(root, settings, progress=progress), Targets(load))
    for each in announced:
        stage.announce(each)
    return stage


def texts(completions):
    return {completion.index: completion.text for completion in completions}


def wanted(target, *indices, name="writer"):
    return {index: f"{name} {target.name} {index}" for index in indices}


# ---------------------------------------------------------------------- what is asked for


@pytest.mark.parametrize("batched", [True, False])
def test_only_gaps_are_written(tmp_path, batched):
    writer, store = Writer(batched=batched), Store(tmp_path)
    for index in (0, 1, 3):
        old = Completion("writer", index, f"old {index}", "modelnew")
        store.completions.put(CompletionKey(A.source_hash, "writer", index), old)
    got = texts(make(tmp_path).completions(writer, A, 4))
    assert got == {0: "old 0", 1: "old 1", 2: "writer A 2", 3: "old 3"}
    assert writer.asked == [[("A", (2,))]]


@pytest.mark.parametrize("batched", [True, False])
def test_twenty_after_ten_are_ten_more(tmp_path, batched):
    first, second, third = (Writer(batched=batched) for _ in range(3))
    list(make(tmp_path, 10).completions(first, A, 10))
    assert texts(make(tmp_path, 20).completions(second, A, 20)) == wanted(A, *range(20))
    assert second.asked == [[("A", tuple(range(10, 20)))]]
    assert len(list(make(tmp_path, 20).completions(third, A, 20))) == 20
    assert third.asked == []


def test_targets_that_were_announced_are_written_for_in_one_go_the_one_that_is_waited_for_first(tmp_path):
    writer = Writer()
    stage = make(tmp_path, 2, announced=(A, B, C))
    for each in (B, A, C):
        assert texts(stage.completions(writer, each, 2)) == wanted(each, 0, 1)
    assert writer.asked == [[("B", (0, 1)), ("A", (0, 1)), ("C", (0, 1))]]


def test_a_target_that_nobody_announced_is_written_for_later(tmp_path):
    writer = Writer()
    stage = make(tmp_path, 1, announced=(A,))
    assert texts(stage.completions(writer, A, 1)) == wanted(A, 0)
    assert texts(stage.completions(writer, B, 1)) == wanted(B, 0)
    assert writer.asked == [[("A", (0,))], [("B", (0,))]]


def test_a_generator_that_gains_nothing_from_many_targets_gets_one_at_a_time(tmp_path):
    writer = Writer(batched=False)
    stage = make(tmp_path, 2, announced=(A, B))
    list(stage.completions(writer, A, 1))
    assert writer.asked == [[("A", (0, 1))]]


def test_generators_do_not_share_completions(tmp_path):
    one, two = Writer("one"), Writer("two")
    stage = make(tmp_path, 2, announced=(A, B))
    for each in (A, B):
        assert texts(stage.completions(one, each, 2)) == wanted(each, 0, 1, name="one")
        assert texts(stage.completions(two, each, 2)) == wanted(each, 0, 1, name="two")
    assert len(one.asked) == len(two.asked) == 1


@pytest.mark.parametrize("batched", [True, False])
def test_who_has_no_more_distinct_ones_is_not_asked_again(tmp_path, batched):
    writer = Writer(batched=batched, distinct=3)
    stage = make(tmp_path, 5)
    for _ in range(2):
        assert texts(stage.completions(writer, A, 5)) == wanted(A, 0, 1, 2)
    assert texts(make(tmp_path, 9).completions(writer, A, 9)) == wanted(A, 0, 1, 2)
    assert writer.asked == [[("A", (0, 1, 2, 3, 4))]]


class Unwell(Writer):
    """Fails at one index, as a server does that was down for a moment."""

    def write(self, request, index):
        if index == 1:
            return Completion(self.name, index, "", "modelnew", note="the server was down", failed=True)
        return super().write(request, index)


@pytest.mark.parametrize("batched", [True, False])
def test_what_failed_is_asked_for_again_by_the_next_session_and_not_by_this_one(tmp_path, batched):
    writer = Unwell(batched=batched)
    stage = make(tmp_path, 3)
    for _ in range(2):
        got = list(stage.completions(writer, A, 3))
        assert {each.index: each for each in got}[1].note == "the server was down"
        assert sorted(each.index for each in got) == [0, 1, 2]
    assert len(writer.asked) == 1
    well = Writer(batched=batched)
    assert texts(make(tmp_path, 3).completions(well, A, 3)) == wanted(A, 0, 1, 2)
    assert well.asked == [[("A", (1,))]]


@pytest.mark.parametrize("batched", [True, False])
def test_a_store_that_cannot_be_written_costs_memory_only(tmp_path, batched):
    (tmp_path / ".kernelllm").write_text("in the way")
    writer = Writer(batched=batched)
    stage = make(tmp_path, 2, announced=(A, B))
    for each in (A, B, A):
        assert texts(stage.completions(writer, each, 2)) == wanted(each, 0, 1)
    assert len(writer.asked) == (1 if batched else 2)


# ---------------------------------------------------------------------- waiting


class Gated(Writer):
    """Writes in the order given, each when its turn is called."""

    def __init__(self, order, **options):
        super().__init__(**options)
        self._order = order
        self.turn = threading.Semaphore(0)

    def generate(self, requests):
        self.asked.append([(request.target.name, request.indices) for request in requests])
        of = {request.target.name: request for request in requests}
        try:
            for name, index in self._order:
                self.turn.acquire()
                yield of[name], self.write(of[name], index)
        finally:
            self.closed.set()


def in_thread(work):
    """Start it; the thread, and where its result will be."""
    result = []

    def run():
        try:
            result.append(work())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


def test_who_waits_gets_the_index_that_was_asked_for_whatever_comes_first(tmp_path):
    writer = Gated([("A", 3), ("A", 1), ("A", 0), ("A", 2)])
    stage = make(tmp_path)
    thread, result = in_thread(lambda: list(stage.completions(writer, A, 1)))
    writer.turn.release(3)
    thread.join(30)
    assert texts(result[0]).items() >= {0: "writer A 0"}.items()
    writer.turn.release()
    stage.close()


def test_the_first_target_is_there_while_the_others_are_being_written(tmp_path):
    writer = Gated([("A", 0), ("B", 0)])
    stage = make(tmp_path, 1, announced=(A, B))
    writer.turn.release()
    assert texts(stage.completions(writer, A, 1)) == wanted(A, 0)
    assert not writer.closed.is_set()
    writer.turn.release()
    assert texts(stage.completions(writer, B, 1)) == wanted(B, 0)


def test_who_waits_for_gaps_does_not_wait_for_other_targets(tmp_path):
    store = Store(tmp_path)
    for index in (0, 1, 3):
        old = Completion("writer", index, f"old {index}", "modelnew")
        store.completions.put(CompletionKey(A.source_hash, "writer", index), old)
    writer = Gated([("A", 2), ("B", 0)])
    stage = make(tmp_path, announced=(A, B))
    writer.turn.release()
    assert sorted(texts(stage.completions(writer, A, 4))) == [0, 1, 2, 3]
    assert not writer.closed.is_set()
    writer.turn.release()
    stage.close()


class Broken(Writer):
    """Gives up after the first completion."""

    def __init__(self, error, **options):
        super().__init__(**options)
        self.error = error

    def write(self, request, index):
        if index > 0:
            raise self.error
        return super().write(request, index)


def test_the_error_that_ends_the_work_reaches_everybody_who_waits(tmp_path):
    writer = Broken(GenerateError("The model is gone."))
    stage = make(tmp_path, 2, announced=(A, B, C))
    for each in (A, B, C, B):
        with pytest.raises(GenerateError, match=r"^The model is gone\.$"):
            list(stage.completions(writer, each, 2))
    assert len(writer.asked) == 1
    assert texts(stage.completions(writer, A, 1)) == wanted(A, 0)  # what there is, is there
    other = Writer("other")
    assert texts(stage.completions(other, A, 2)) == wanted(A, 0, 1, name="other")


def test_a_generator_that_cannot_even_say_who_it_is_raises(tmp_path):
    class Nameless(Writer):
        def identity(self):
            raise GenerateError("no model")

    with pytest.raises(GenerateError, match="no model"):
        list(make(tmp_path).completions(Nameless(), A, 1))


def test_an_error_keeps_nothing_in_memory(tmp_path):
    class Model:
        pass

    class Holding(Writer):
        def write(self, request, index):
            model = Model()
            self.model = weakref.ref(model)
            raise GenerateError("too large")

    writer = Holding()
    stage = make(tmp_path)
    with pytest.raises(GenerateError) as error:
        list(stage.completions(writer, A, 1))
    del error
    gc.collect()
    assert writer.model() is None


def test_a_target_that_cannot_be_imported_does_not_spoil_the_others(tmp_path):
    def load(target):
        if target is B:
            raise SessionError("B cannot be imported.")

    writer = Writer()
    stage = make(tmp_path, 1, load, announced=(A, B, C))
    with pytest.raises(SessionError, match=r"^B cannot be imported\.$"):
        list(stage.completions(writer, B, 1))
    for each in (A, C):
        assert texts(stage.completions(writer, each, 1)) == wanted(each, 0)
    assert writer.asked == [[("A", (0,)), ("C", (0,))]]


def test_nothing_is_imported_where_everything_is_known(tmp_path):
    list(make(tmp_path, 2).completions(Writer(), A, 2))

    def load(target):
        raise AssertionError("not needed")

    assert texts(make(tmp_path, 2, load).completions(Writer(), A, 2)) == wanted(A, 0, 1)


def test_other_inputs_of_a_conftest_get_other_completions(tmp_path):
    for fingerprint in ("", "one", "two"):
        writer = Writer()
        stage = CompleteStage(context(tmp_path, inputs=fingerprint, device="cpu", samples=1), Targets())
        assert texts(stage.completions(writer, A, 1)) == wanted(A, 0)
        assert len(writer.asked) == 1


# ---------------------------------------------------------------------- settling, ending


def test_settling_waits_for_what_is_written_on_the_gpu_and_takes_its_memory_back(tmp_path):
    on_gpu, elsewhere = Gated([("A", 0), ("B", 0)], on_gpu=True), Gated([("A", 0), ("B", 0)], name="server")
    stage = make(tmp_path, 1, announced=(A, B))
    for writer in (on_gpu, elsewhere):
        writer.turn.release()
        list(stage.completions(writer, A, 1))
    thread, _ = in_thread(stage.leave_gpus)
    thread.join(0.2)
    assert thread.is_alive() and on_gpu.released == 0
    on_gpu.turn.release()
    thread.join(30)
    assert not thread.is_alive()
    assert (on_gpu.released, elsewhere.released) == (1, 0)
    assert on_gpu.closed.is_set() and not elsewhere.closed.is_set()
    elsewhere.turn.release()
    stage.close()


def test_closing_ends_the_work_after_the_next_completion_and_keeps_what_is_there(tmp_path):
    writer = Gated([("A", index) for index in range(50)])
    stage = make(tmp_path, 50)
    writer.turn.release()
    list(stage.completions(writer, A, 1))
    thread, _ = in_thread(stage.close)
    writer.turn.release(10)
    thread.join(30)
    assert writer.closed.is_set()
    kept = texts(make(tmp_path, 50).completions(Writer(), A, 50))
    assert kept == wanted(A, *range(50))  # the rest is asked for by the next session: not "exhausted"


def test_progress_counts_what_is_missing(tmp_path):
    list(make(tmp_path, 3).completions(Writer(), A, 3))
    told = []
    stage = make(tmp_path, 5, progress=told.append, announced=(A, B))
    for each in (A, B):
        list(stage.completions(Writer(), each, 5))
    stage.close()
    assert told[0] == "A and 1 more: writer is writing candidates"
    assert [line.split(" completions")[0] for line in told[1:]] == [f"writer: {n} of 7" for n in range(1, 8)]


# ---------------------------------------------------------------------- several processes

PATHS = f"{Path(__file__).parent}:{Path(__file__).parents[1] / 'helpers'}"

SHARE = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
from test_complete import A, B, C, Writer, make

root = Path(sys.argv[1])


class Counted(Writer):
    def write(self, request, index):
        with (root / "asked").open("a") as file:
            file.write(f"{request.target.name} {index}\\n")
        return super().write(request, index)


print("ready", flush=True)
sys.stdin.readline()
stage = make(root, 20, announced=(A, B, C))
for target in (A, B, C):
    assert len(list(stage.completions(Counted(batched=sys.argv[3] == "True"), target, 20))) == 20
"""


@pytest.mark.parametrize("batched", [True, False])
def test_several_processes_share_one_generation(tmp_path, batched):
    command = [
        sys.executable,
        "-c",
        SHARE,
        str(tmp_path),
        PATHS,
        str(batched),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=240)
        assert process.returncode == 0
    lines = (tmp_path / "asked").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {index}" for name in "ABC" for index in range(20))


INTERRUPTED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
import torch
from random_llama import save
from test_complete import A, Writer, make
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.protocol import Ask, Sampling
from kernelllm_judge.core.records import Completion

torch.set_num_threads(1)
root = Path(sys.argv[1])
model = LocalModel(str(save(root / "model", eos_token_id=None)), device_map="cpu")


class Real(Writer):
    def generate(self, requests):
        (request,) = requests
        for index, most in ((0, 2), (1, 20_000)):
            for _ in model.answers([Ask("x", (index,))], Sampling(max_new_tokens=most)):
                yield request, Completion("writer", index, "text", "modelnew")
                print("written", flush=True)

    def stop(self):
        model.stop()


stage = make(root, 2)
try:
    list(stage.completions(Real(), A, 2))
except KeyboardInterrupt:
    stage.close()
    print("closed", flush=True)
    sys.exit(130)
"""


def test_an_interrupted_run_ends_at_once_and_keeps_what_was_written(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), PATHS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "written\n"
        process.send_signal(2)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert out.endswith("closed\n")
    (kept,) = tmp_path.glob(".kernelllm/targets/*/completions/*/*.json")
    assert kept.name == "0000.json" and json.loads(kept.read_text())


# ---------------------------------------------------------------------- in a session


class Unable(Writer):
    """Like a local model that does not fit."""

    def __init__(self):
        super().__init__("unable")

    def generate(self, requests):
        raise GenerateError("The model needs 17.0 GiB of GPU memory and 3.0 GiB are free.")


def test_a_generator_that_fails_leaves_the_others_candidates_to_be_judged(tmp_path, monkeypatch):
    from pytest_kernelllm.discover.scan import scan_file

    lay_out(tmp_path, {"Scale_0.py": GOOD})
    monkeypatch.chdir(tmp_path)
    (scale,) = scan_file(tmp_path / "layers.py", tmp_path).targets
    settings = Settings(generator="files", samples=1, candidates_dir="candidates", device="cpu")
    session = Session(tmp_path, settings, generators=[Unable()])
    try:
        session.announce(scale)
        for candidate in session.candidate_ids:
            session.expect(scale, candidate)
        with pytest.raises(SessionError, match=r"^The model needs 17\.0 GiB of GPU memory"):
            session.outcome(scale, CandidateId("unable"))
        assert session.outcome(scale, CandidateId("files")).verdict.verdict == "accepted"
    finally:
        session.close()
