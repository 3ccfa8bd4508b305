"""A store that commit d55e4e8 wrote, under policy 32 (one verdict under 31), with the project it belongs to, opened today.

Left out are renderings; white space in the JSON is less.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernelllm_judge.core.kernel_module import unmodified
from kernelllm_judge.core.records import KernelRecord
from kernelllm_judge.standing import Change, standing
from pytest_kernelllm.discover.adoption import adoption_state, made_for, verified_under
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.signing import VARIABLE
from pytest_kernelllm.store.verdicts import VerdictKey
from pytest_kernelllm_hooks.check import main

WRITTEN = Path(__file__).parents[1] / "data" / "store_d55e4e8"
EARLIER = "26f1911fa4b8b4e4b8d1fbdba2c0f18f450cc03d7eb92978f05217b1cfc1eb0f"
KEY = "a-key-that-only-the-trusted-job-has"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "store").rename(tmp_path / ".kernelllm")
    return tmp_path


def known(root: Path) -> dict[str, KernelRecord]:
    """The verdicts of the target as it is today: by the rule that rejected, or by the policy that accepted."""
    [target] = scan([root / "layers.py"], root).targets
    assert target.source_hash != EARLIER
    records = [each for each in Store(root, environ={}).verdicts if each.source_hash == target.source_hash]
    return {each.verdict.rule or f"accepted {each.verdict.environment.policy}": each for each in records}


NOW = "nothing that it rests on has changed on the side that concerns it"
OLD = "it was given under policy 31, before each rule had a version of its own"
STRICTER = "it was accepted, and memory has become stricter: races between warps"
LOOSER = "it was rejected, and values has become looser: sums may drift further"
KNOWN = {
    "today": ((), {"accepted 32": NOW, "accepted 31": OLD, "values": NOW, "launches": NOW}),
    "with a looser rule": (
        (Change("values", 2, "looser", "sums may drift further"),),
        {"accepted 32": NOW, "accepted 31": OLD, "values": LOOSER, "launches": NOW},
    ),
    "with a stricter rule": (
        (Change("memory", 2, "stricter", "races between warps"),),
        {"accepted 32": STRICTER, "accepted 31": OLD, "values": NOW, "launches": NOW},
    ),
    "with a stricter rule on GPUs": (
        (Change("memory", 2, "stricter", "races between warps", "cuda"),),
        {"accepted 32": NOW, "accepted 31": OLD, "values": NOW, "launches": NOW},
    ),
}


@pytest.mark.parametrize(("changes", "reasons"), KNOWN.values(), ids=KNOWN)
def test_its_verdicts_stand_or_are_judged_again_each_with_its_reason(project: Path, changes, reasons) -> None:
    found = {name: standing(each.verdict, changes) for name, each in known(project).items()}
    assert {name: each.reason for name, each in found.items()} == reasons
    assert {name for name, each in found.items() if each.stands} == {
        name for name, reason in reasons.items() if reason == NOW
    }


def test_verdicts_are_found_under_the_names_of_today(project: Path) -> None:
    store = Store(project, environ={})
    [target] = scan([project / "layers.py"], project).targets
    for record in known(project).values():
        verdict = record.verdict
        key = VerdictKey(target.source_hash, verdict.kernel_hash, replace(verdict.environment, policy="99"))
        assert store.verdicts.get(key) == record and record.target == target.id
        assert made_for(record.candidate.source.encode()) == target.source_hash
        assert unmodified(record.candidate.source)
    assert store.problems == []


def test_its_completions_are_not_asked_for_again(project: Path) -> None:
    [(path, identity)] = [
        (path, path.parent.name)
        for path in (project / ".kernelllm/targets" / EARLIER).glob("completions/*/0001.json")
    ]
    [target] = scan([project / "layers.py"], project).targets
    Store(project, environ={})
    there = project / ".kernelllm/targets" / target.source_hash / "completions" / identity / path.name
    assert json.loads(there.read_bytes())["body"] == json.loads(path.read_bytes())["body"]


def test_it_is_carried_over_once(project: Path) -> None:
    Store(project, environ={})
    shutil.rmtree(project / ".kernelllm/targets" / EARLIER)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert len(known(project)) == 4
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_what_a_key_did_not_sign_is_not_believed_because_it_is_old(project: Path) -> None:
    store = Store(project, environ={VARIABLE: KEY})
    assert list(store.verdicts) == [] and len(store.problems) == 1


def test_the_kernel_that_it_adopted_is_current(project: Path, monkeypatch, capsys) -> None:
    [target] = scan([project / "layers.py"], project).targets
    assert adoption_state(project, target) == "current"
    assert verified_under((project / "_triton/scale.py").read_text()) == "32"
    monkeypatch.chdir(project)
    assert main(["--all"]) == 0 and capsys.readouterr().out == ""
    layers = project / "layers.py"
    layers.write_text(layers.read_text().replace("* self.weight + 1", "* self.weight + 2"))
    assert main(["--all"]) == 1 and "_triton.scale is stale" in capsys.readouterr().out
