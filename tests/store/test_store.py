import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from standing_now import NOW

from kernelllm_judge.core.records import Candidate, Completion, Environment, KernelRecord, Terms, Verdict
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey
from pytest_kernelllm.store.entry import DamagedEntry, decode, encode
from pytest_kernelllm.store.renderings import RenderingKey
from pytest_kernelllm.store.verdicts import VerdictKey

CPU = Environment("cpu", torch="2.13.0", triton="3.7.1")
H200 = Environment("cuda", gpu="NVIDIA H200", torch="2.11.0")


def completion(index: int = 0, text: str = "text") -> Completion:
    return Completion("inductor", index, text, "inductor", seconds=0.1)


def completions(store: Store, source_hash: str, identity: str) -> list[Completion]:
    found = (
        store.completions.get(CompletionKey(source_hash, identity, index)) for index in itertools.count()
    )
    return list(itertools.takewhile(lambda completion: completion is not None, found))


def record(
    source: str = "x = 1\n", source_hash: str = "a" * 64, environment: Environment = CPU
) -> KernelRecord:
    candidate = Candidate("m.py::M", source, "inductor")
    verdict = Verdict("accepted", "correctness", "", candidate.kernel_hash, environment, versions=NOW)
    return KernelRecord("m.py::M", source_hash, candidate, verdict, "2026-11-21T00:00:00Z")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_looking_writes_nothing(store: Store) -> None:
    assert completions(store, "h", "id") == []
    assert store.renderings.get(RenderingKey("h", completion(), "1")) is None
    assert store.verdicts.get(VerdictKey("h", "k", CPU)) is None
    assert list(store.verdicts) == []
    assert store.gc([]) == 0
    assert not store.path.exists()


def test_folder_ignores_itself(store: Store) -> None:
    store.completions.put(CompletionKey("h", "id", 0), completion())
    assert (store.path / ".gitignore").read_text() == "*\n"


def test_completions_come_back_in_order_and_per_identity(store: Store) -> None:
    for index in (1, 0):
        store.completions.put(CompletionKey("h", "temperature=1", index), completion(index))
    store.completions.put(CompletionKey("h", "temperature=0", 0), completion(0, "other"))
    assert completions(store, "h", "temperature=1") == [completion(0), completion(1)]
    assert completions(store, "h", "temperature=0") == [completion(0, "other")]
    assert completions(store, "g", "temperature=1") == []


def test_a_completion_is_known_though_one_before_it_is_not(store: Store) -> None:
    store.completions.put(CompletionKey("h", "id", 3), completion(3))
    assert store.completions.get(CompletionKey("h", "id", 3)) == completion(3)
    assert store.completions.get(CompletionKey("h", "id", 2)) is None


def test_a_generator_can_be_exhausted(store: Store) -> None:
    keys = [CompletionKey(*key, 0) for key in (("h", "id"), ("h", "other"), ("g", "id"))]
    assert not any(map(store.completions.exhausted, keys))
    store.completions.mark_exhausted(keys[0])
    assert list(map(store.completions.exhausted, keys)) == [True, False, False]


def test_renderings_are_of_one_completion_source_and_version(store: Store) -> None:
    candidate = Candidate("m.py::M", "x = 'é'\n", "inductor")
    store.renderings.put(RenderingKey("h", completion(0), "1"), candidate)
    store.renderings.put(RenderingKey("h", completion(1), "1"), "line 3: no ModelNew.")
    assert store.renderings.get(RenderingKey("h", completion(0), "1")) == candidate
    assert store.renderings.get(RenderingKey("h", completion(1), "1")) == "line 3: no ModelNew."
    assert store.renderings.get(RenderingKey("h", completion(0, "changed"), "1")) is None
    assert store.renderings.get(RenderingKey("h", completion(0), "2")) is None
    assert store.renderings.get(RenderingKey("g", completion(0), "1")) is None
    assert store.renderings.kernel("h", candidate.kernel_hash).read_bytes() == candidate.source.encode()


def test_verdicts_are_of_one_kernel_source_and_environment(store: Store) -> None:
    here, there = record(), record(environment=H200)
    store.verdicts.add(here)
    store.verdicts.add(there)
    kernel = here.candidate.kernel_hash
    assert store.verdicts.get(VerdictKey("a" * 64, kernel, CPU)) == here
    assert store.verdicts.get(VerdictKey("a" * 64, kernel, H200)) == there
    assert store.verdicts.get(VerdictKey("a" * 64, kernel, replace(CPU, torch="2.14.0"))) is None
    assert store.verdicts.get(VerdictKey("b" * 64, kernel, CPU)) is None
    assert {r.verdict.environment for r in store.verdicts} == {CPU, H200}


def test_odd_source_hashes_stay_in_the_folder(store: Store) -> None:
    store.completions.put(CompletionKey("../../up", "id", 0), completion())
    assert completions(store, "../../up", "id") == [completion()]
    assert len(list((store.path / "targets").iterdir())) == 1


DAMAGE = {
    "truncated": lambda b: b[: len(b) // 2],
    "empty": lambda b: b"",
    "not JSON": lambda b: b"\xff\x00garbage",
    "altered": lambda b: b.replace(b"accepted", b"rejected"),
    "not an entry": lambda b: b"[1, 2]",
    "unknown field": lambda b: encode("verdict", {**json.loads(b)["body"], "extra": 1}),
    "another kernel": lambda b: encode(
        "verdict", {**json.loads(b)["body"], "candidate": record("y = 2\n").candidate.to_json()}
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_entries_are_set_aside_and_reported_once(store: Store, kind: str) -> None:
    good, bad = record("ok = 1\n"), record()
    store.verdicts.add(good)
    store.verdicts.add(bad)
    (path,) = store.path.glob(f"targets/*/verdicts/{bad.verdict.kernel_hash}*")
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    assert store.verdicts.get(VerdictKey(bad.source_hash, bad.verdict.kernel_hash, CPU)) is None
    assert list(store.verdicts) == [good]
    assert not path.exists() and len(list((store.path / "damaged").iterdir())) == 1
    assert len(store.problems) == 1 and "damaged entry" in store.problems[0] and "\n" not in store.problems[0]
    store.verdicts.add(bad)
    assert store.verdicts.get(VerdictKey(bad.source_hash, bad.verdict.kernel_hash, CPU)) == bad


OTHER_VERSIONS = {
    "format": lambda b: b.replace(b'"format": 5', b'"format": 99'),
    "schema of the record": lambda b: encode("verdict", {**json.loads(b)["body"], "schema": 99}),
    "schema of the verdict": lambda b: encode(
        "verdict",
        {**json.loads(b)["body"], "verdict": {**json.loads(b)["body"]["verdict"], "schema": 99}},
    ),
}


@pytest.mark.parametrize("kind", OTHER_VERSIONS)
def test_entries_of_another_version_are_kept_aside_and_said_once_for_the_store(
    store: Store, kind: str
) -> None:
    for number in range(3):
        store.verdicts.add(record(f"x = {number}\n"))
    for path in store.path.glob("targets/*/verdicts/*"):
        path.write_bytes(OTHER_VERSIONS[kind](path.read_bytes()))
    before = sorted(path.read_bytes() for path in store.path.glob("targets/*/verdicts/*"))
    assert list(store.verdicts) == []
    (problem,) = store.problems
    assert "another version of pytest-kernelllm count as missing; they are kept in" in problem
    store.gc([])
    assert sorted(path.read_bytes() for path in store.path.glob("other-versions/*")) == before


def test_verdicts_answer_for_their_own_terms(store: Store) -> None:
    usual, loose = record(), replace(record(), terms=Terms(tolerance=0.1))
    store.verdicts.add(usual)
    store.verdicts.add(loose)
    assert store.verdicts.get(VerdictKey.of(usual)) == usual
    assert store.verdicts.get(VerdictKey.of(loose)) == loose
    assert store.verdicts.get(replace(VerdictKey.of(loose), terms=Terms(baseline="compile"))) is None
    assert len(list(store.verdicts)) == 2


def test_an_unwritable_place_is_a_problem_and_no_error(tmp_path: Path) -> None:
    (tmp_path / ".kernelllm").write_text("a file, not a folder")
    store = Store(tmp_path)
    store.verdicts.add(record())
    with store.lock("target"):
        pass
    assert list(store.verdicts) == []
    assert len(store.problems) == 2


def test_gc_keeps_only_the_targets_named(store: Store) -> None:
    store.verdicts.add(record(source_hash="a" * 64))
    store.verdicts.add(record(source_hash="b" * 64))
    store.completions.put(CompletionKey("c" * 64, "id", 0), completion())
    old = store.path / "targets" / ("a" * 64) / ".killed.tmp"
    old.write_text("")
    import os

    os.utime(old, (0, 0))
    assert store.gc(["a" * 64]) == 2
    assert [r.source_hash for r in store.verdicts] == ["a" * 64]
    assert completions(store, "c" * 64, "id") == []
    assert not old.exists()


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with Store(tmp_path).lock("target"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_lock_is_shared_by_processes_and_freed_by_a_kill(tmp_path: Path) -> None:
    program = """
import sys, time, pathlib
from pytest_kernelllm.store import Store
with Store(pathlib.Path(sys.argv[1])).lock("target"):
    print("held", flush=True)
    time.sleep(1000)
"""
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    entered = threading.Event()

    def enter() -> None:
        with Store(tmp_path).lock("target"):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.2)
    process.kill()
    process.wait()
    assert entered.wait(240)
    thread.join()


WRITER = """
import os, sys, itertools, pathlib
sys.path[:] = sys.argv[2].split(os.pathsep)
from test_store import CompletionKey, completion, record
from pytest_kernelllm.store import Store
store = Store(pathlib.Path(sys.argv[1]))
for i in itertools.count():
    store.verdicts.add(record("x = '" + "1" * 120_000 + f"'\\ny = {i % 7}\\n"))
    store.completions.put(CompletionKey("h", "id", 0), completion(i % 5, "text" * 20_000))
    if not i:
        print("go", flush=True)
"""


def test_a_kill_at_any_instant_leaves_whole_entries(tmp_path: Path) -> None:
    moments = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), os.pathsep.join(sys.path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"go\n"
        time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.wait()
        process.stdout.close()
    store = Store(tmp_path)
    entries = list(store.path.glob("targets/*/*/*.json")) + list(store.path.glob("targets/*/*/*/*.json"))
    assert entries
    assert len(list(store.verdicts)) + len(completions(store, "h", "id")) == len(entries)
    assert store.problems == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=8,
    )
)
def test_an_entry_comes_back_as_it_went(body: object) -> None:
    assert decode("kind", encode("kind", body)) == body
    with pytest.raises(DamagedEntry):
        decode("other", encode("kind", body))


def test_importing_the_store_imports_nothing_heavy() -> None:
    program = (
        "import sys\nimport pytest_kernelllm.store\n"
        "assert not {'torch', 'triton', 'libcst', 'filelock'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
