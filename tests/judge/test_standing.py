"""Which verdicts stand when rules have changed, and why the others are judged again."""

from dataclasses import replace

import pytest

from kernelllm_judge.core.records import LACKS, Check, Environment, Verdict
from kernelllm_judge.rules.catalog import RULES
from kernelllm_judge.rules.rule import seed_of
from kernelllm_judge.standing import (
    CHANGES,
    FIRST_POLICY,
    NO_FAULT,
    PARTS,
    Change,
    newly_refused,
    policy,
    standing,
    versions,
)

FIRST = {rule.name for rule in RULES} - {change.name for change in CHANGES if change.version == 1}
"""The rules of the first policy."""

CPU, GPU = Environment("cpu", policy="32"), Environment("cuda", "NVIDIA H200", policy="32")
NOW = versions(FIRST, ())


def given(rule: str = "", environment: Environment = CPU, **fields) -> Verdict:
    """A verdict of the first policy: an acceptance, or a rejection by a rule."""
    stage = next((each.stage for each in RULES if each.name == rule), "correctness")
    outcome = "rejected" if rule else "accepted"
    return Verdict(outcome, stage, "", "0" * 64, environment, **{"rule": rule, "versions": NOW, **fields})


STRICTER = Change("sizes", 2, "stricter", "more corners")
LOOSER = Change("sizes", 2, "looser", "fewer corners")
NEW = Change("addresses", 1, "stricter", "new: bounds are proven")
BOUNDS = Change("bounds", 2, "looser", "sums may drift further")
TIMED = Change("timing", 2, "looser", "more rounds")
STANDS = "nothing that it rests on has changed on the side that concerns it"

CASES = {
    "nothing changed": (given(), (), ""),
    "an acceptance, and a rule is looser": (given(), (LOOSER,), ""),
    "an acceptance, and a rule is stricter": (
        given(),
        (STRICTER,),
        "it was accepted, and sizes has become stricter: more corners",
    ),
    "an acceptance, and a rule is new": (
        given(),
        (NEW,),
        "it was accepted, and addresses has become stricter: new: bounds are proven",
    ),
    "its own rejection, and the rule is looser": (
        given("sizes"),
        (LOOSER,),
        "it was rejected, and sizes has become looser: fewer corners",
    ),
    "its own rejection, and the rule is stricter": (given("sizes"), (STRICTER,), ""),
    "another rule's rejection, looser": (given("values"), (LOOSER,), ""),
    "another rule's rejection, stricter": (given("values"), (STRICTER,), ""),
    "a wrong output, and the bounds are looser": (
        given("values"),
        (BOUNDS,),
        "it was rejected, and bounds has become looser: sums may drift further",
    ),
    "a forbidden import, and the bounds are looser": (given("static check"), (BOUNDS,), ""),
    "too slow, and timing is looser": (
        given("speed", GPU),
        (TIMED,),
        "it was rejected, and timing has become looser: more rounds",
    ),
    "too slow, yet correct, and a rule is stricter": (
        given("speed", GPU),
        (STRICTER,),
        "it was rejected, and sizes has become stricter: more corners",
    ),
    "a GPU's, and the interpreter is stricter": (given("", GPU), (replace(STRICTER, where="cpu"),), ""),
    "a GPU's, and a rule is stricter on GPUs": (
        given("", GPU),
        (replace(STRICTER, where="cuda"),),
        "it was accepted, and sizes has become stricter: more corners",
    ),
    "the interpreter's, and a rule is stricter on GPUs": (given(), (replace(STRICTER, where="cuda"),), ""),
    "given since then": (given("sizes", versions={**NOW, "sizes": 2}), (LOOSER,), ""),
    "looser, and looser again since then": (
        given("sizes", versions={**NOW, "sizes": 2}),
        (LOOSER, replace(LOOSER, version=3, why="fewer still")),
        "it was rejected, and sizes has become looser: fewer still",
    ),
    "without versions, of the first policy": (given(versions={}), (LOOSER,), ""),
    "without versions, of the first policy, and stricter": (
        given(versions={}),
        (STRICTER,),
        "it was accepted, and sizes has become stricter: more corners",
    ),
    "of an earlier policy": (
        given(versions={}, environment=replace(CPU, policy="31")),
        (),
        "it was given under policy 31, before each rule had a version of its own",
    ),
    "nobody could say": (replace(given(), verdict="inconclusive"), (STRICTER, LOOSER, BOUNDS), ""),
}


@pytest.mark.parametrize(("verdict", "changes", "why"), CASES.values(), ids=CASES)
def test_what_a_change_concerns_is_judged_again_and_nothing_else(verdict, changes, why) -> None:
    found = standing(verdict, changes)
    assert (found.stands, found.reason) == (not why, why or STANDS)


def test_a_judge_names_the_versions_of_its_rules() -> None:
    assert versions(["sizes", "values"], (LOOSER, NEW)) == {"sizes": 2, "values": 1} | dict.fromkeys(PARTS, 1)
    assert policy((LOOSER, NEW)) == str(FIRST_POLICY + 2)
    assert all(rule.version == versions([rule.name])[rule.name] for rule in RULES)


def test_every_change_is_of_a_rule_or_a_part_and_the_next_version_of_it() -> None:
    latest = dict.fromkeys((*FIRST, *PARTS), 1)
    for change in CHANGES:
        assert change.version == latest.get(change.name, 0) + 1, change
        latest[change.name] = change.version
    # Whoever adds a rule adds a change, or no acceptance would be judged again by it.
    assert len(FIRST) == 33  # of 34: one has gone since
    assert {rule.name for rule in RULES} | set(latest) >= NO_FAULT


def test_no_two_rules_draw_the_same_inputs() -> None:
    names = [*(rule.name for rule in RULES), "substitutes", "timer"]
    assert len({seed_of(name) for name in names}) == len(names)
    assert min(map(seed_of, names)) >= 1024


REFUSED = {
    "before rules had versions": ("launches", "31", (), "policy 31 accepted it, and policy 32 does not"),
    "its rule is stricter since": (
        "launches",
        "32",
        (Change("launches", 2, "stricter", "timed calls too"),),
        "policy 32 accepted it, and launches has become stricter since: timed calls too",
    ),
    "no rule is stricter since": ("launches", "32", (), ""),
    "another rule is stricter since": ("launches", "32", (STRICTER,), ""),
    "its rule was as strict then": ("launches", "33", (Change("launches", 2, "stricter", "more"),), ""),
    "a wrong result": ("values", "31", (), ""),
    "nothing is known of it": ("launches", "", (), ""),
    "accepted": ("", "31", (), ""),
}


@pytest.mark.parametrize(("rule", "before", "changes", "why"), REFUSED.values(), ids=REFUSED)
def test_what_only_a_newer_rule_refuses_is_told_from_a_fault(rule, before, changes, why) -> None:
    assert newly_refused(given(rule), before, changes) == why


def test_what_is_undecided_is_judged_again_once_any_rule_changed():
    found = replace(given(), verdict="inconclusive", checks=(Check(LACKS, True, None, None, "a GPU"),))
    assert standing(found, ()).stands
    assert not standing(found, (LOOSER,)).stands and not standing(found, (STRICTER,)).stands
