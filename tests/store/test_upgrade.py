"""A store that the version before wrote: an excerpt of one, as it was written."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernelllm_judge.core.records import (
    SCHEMA,
    Candidate,
    Environment,
    KernelRecord,
    Terms,
    Verdict,
)
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey
from pytest_kernelllm.store.entry import digest
from pytest_kernelllm.store.signing import VARIABLE, find_key
from pytest_kernelllm.store.verdicts import VerdictKey

WRITTEN = Path(__file__).parents[1] / "data" / "store_format_1"
IDENTITY = "inductor/1 torch=2.13.0+cpu triton=3.7.1"
SOURCE, EMPTY = (
    "e0192c88db1605860bb1a7684b15b2d0ca30a7006a8be9ae4cc2fae1838c0c69",
    "b3e7886d0cb33a4b8b782b07e58832fad03daa09ecdbf18fb3f10ecca6a9840e",
)


@pytest.fixture
def old(tmp_path: Path) -> Store:
    shutil.copytree(WRITTEN, tmp_path / ".kernelllm")
    return Store(tmp_path, environ={})


def files(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def test_what_it_holds_is_known_and_stays_as_it_is(old: Store) -> None:
    before = files(old)
    (record,) = old.verdicts
    assert record.verdict.accepted and record.schema == record.verdict.schema == SCHEMA
    assert record.terms == Terms() and record.candidate.generator == "inductor"
    assert old.verdicts.get(VerdictKey.of(record)) == record
    completion = old.completions.get(CompletionKey(SOURCE, IDENTITY, 2))
    assert completion is not None and "@triton.jit" in completion.text
    assert old.completions.exhausted(CompletionKey(EMPTY, IDENTITY, 0))
    assert old.problems == [] and files(old) == before


def test_verdicts_on_kernels_that_were_named_by_their_bytes_stay_known_and_can_be_shared(
    tmp_path: Path,
) -> None:
    candidate = Candidate("a.py::A", "x  =  1\n", "files")
    by_bytes = hashlib.sha256(candidate.source.encode()).hexdigest()
    assert by_bytes != candidate.kernel_hash
    old, new, third = (Store(tmp_path / name, environ={}) for name in ("old", "new", "third"))
    verdict = Verdict("accepted", "timing", "", by_bytes, Environment("cuda"))
    record = KernelRecord("a.py::A", "0" * 64, candidate, verdict, "2026-11-01T00:00:00+00:00")
    old.verdicts.add(record)
    [path] = old.path.glob("targets/*/verdicts/*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

    assert list(old.verdicts) == [record] and old.verdicts.get(VerdictKey.of(record)) == record
    [(name, content, _)] = old.verdicts.entries()
    assert new.verdicts.take(name, content) and list(new.verdicts) == [record]
    # The same program under today's name is judged anew; both verdicts are kept.
    today = replace(record, verdict=replace(verdict, kernel_hash=candidate.kernel_hash))
    assert new.verdicts.get(VerdictKey.of(today)) is None
    new.verdicts.add(today)
    assert sorted(r.verdict.kernel_hash for r in new.verdicts) == sorted([by_bytes, candidate.kernel_hash])
    assert old.problems == new.problems == []

    wrong = replace(record, verdict=replace(verdict, kernel_hash="0" * 64))
    third.verdicts.add(wrong)
    assert list(third.verdicts) == [] and len(third.problems) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_verdicts_of_the_schema_before_stay_known(old: Store, version: int) -> None:
    (record,) = old.verdicts
    old.verdicts.add(record)
    [path] = old.path.glob("targets/*/verdicts/*")
    entry = json.loads(path.read_text())
    body = entry["body"]
    body["schema"] = body["verdict"]["schema"] = 2
    del body["candidate"]["others"]
    checksum = digest("verdict", json.dumps(body, sort_keys=True))
    path.write_text(json.dumps({**entry, "format": version, "checksum": checksum}))
    assert list(old.verdicts) == [record] and old.problems == []


def test_it_can_be_shared(old: Store, tmp_path: Path) -> None:
    ((name, content, record),) = old.verdicts.entries()
    new = Store(tmp_path / "new", environ={})
    assert new.verdicts.take(name, content)
    assert list(new.verdicts) == [record]


def test_what_is_judged_again_takes_its_place(old: Store) -> None:
    (record,) = old.verdicts
    again = replace(record, created="2026-12-01T00:00:00+00:00")
    old.verdicts.add(again)
    assert list(old.verdicts) == [again]


def test_its_signatures_hold(old: Store, tmp_path: Path) -> None:
    environ = {VARIABLE: "a-key-that-only-the-trusted-job-has"}
    assert list(Store(tmp_path, environ=environ).verdicts) == []
    (path,) = old.path.glob("targets/*/verdicts/*")
    entry = json.loads(path.read_text())
    signed = json.dumps(["pytest-kernelllm store", 1, old.place_of(path), entry["checksum"]])
    key = find_key(environ)
    assert key is not None
    path.write_text(json.dumps({**entry, "signature": key.sign(signed)}))
    assert len(list(Store(tmp_path, environ=environ).verdicts)) == 1
