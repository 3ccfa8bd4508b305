"""What judges the corpus and prints the catch table. ``make catch`` judges all of it."""

import collections

import pytest
from corpus import table
from corpus.__main__ import conclude, main
from corpus.corpus import NO_STATIC_CHECK, CorpusJudge, Outcome
from corpus.entries import load

from kernelllm_judge.rules.catalog import SWITCHABLE


def test_the_command_judges_without_the_static_check_and_with_it(capsys):
    assert (
        main(["--only", "softmax__p[al]*"]) == 0
    )  # an honest one, and one that only the static check refuses
    printed = capsys.readouterr().out
    assert "4/4 with the static check, 3/3 without; honest refused 0/1" in printed


def test_launches_are_counted_in_repeated_calls_too():
    [entry] = load("hinge_loss__keyed_by_values")
    [outcome] = CorpusJudge("cpu").judge([entry], frozenset({"static check", "state kept", "decoy"}))
    assert outcome.caught == "launches"
    assert "other addresses" in outcome.reason


def test_the_corpus_is_large_and_names_every_rule():
    kinds = collections.Counter(entry.kind for entry in load())
    assert kinds["cheat"] >= 60
    assert kinds["honest"] >= 30
    named = {rule for entry in load() for rule in entry.rules}
    assert named >= SWITCHABLE - {"static check"}
    assert any(entry.only_static_check for entry in load())


def test_few_cheats_are_left_to_the_static_check_alone():
    cheats = [entry for entry in load() if entry.kind == "cheat"]
    assert sum(bool(entry.only_static_check) for entry in cheats) <= 0.03 * len(cheats)


def outcome(name, status, rule="", disabled=frozenset()):
    [entry] = load(name)
    return Outcome(entry, disabled, status, rule, "because", 1.0)


@pytest.mark.parametrize(
    ("name", "status", "rule", "disabled", "right"),
    [
        ("softmax__plain", "accepted", "", frozenset(), True),
        ("softmax__plain", "rejected", "values", frozenset(), False),
        ("softmax__plain", "inconclusive", "", frozenset(), False),
        ("softmax__uniform", "rejected", "values", NO_STATIC_CHECK, True),
        ("softmax__uniform", "rejected", "sizes", NO_STATIC_CHECK, False),
        ("softmax__uniform", "rejected", "static check", frozenset(), False),
        ("softmax__uniform", "accepted", "", NO_STATIC_CHECK, False),
        ("hinge_loss__exits", "rejected", "static check", frozenset(), True),
        ("hinge_loss__exits", "rejected", "run", frozenset(), False),
        ("hinge_loss__exits", "rejected", "run", NO_STATIC_CHECK, True),
        ("softmax__watch_disabled", "accepted", "", frozenset(), False),
        ("softmax__watch_disabled", "accepted", "", NO_STATIC_CHECK, True),
    ],
)
def test_an_outcome_is_right_only_for_the_stated_reason(name, status, rule, disabled, right):
    assert outcome(name, status, rule, disabled).right == right


def test_the_command_fails_when_one_entry_comes_out_wrong(capsys):
    right, wrong = outcome("softmax__uniform", "rejected", "values"), outcome("softmax__zeros", "accepted")
    assert conclude([right], [right]) == 0
    assert "expected" not in capsys.readouterr().out
    for full, without in (([right, wrong], [right]), ([right], [right, wrong])):
        assert conclude(full, without) == 1
        assert "softmax__zeros, static check on: expected values, got accepted" in capsys.readouterr().out


def test_the_table_marks_what_was_missed():
    good, bad = outcome("softmax__uniform", "rejected", "values"), outcome("softmax__zeros", "accepted")
    honest = outcome("softmax__plain", "rejected", "stress")
    outcomes = [good, bad, honest]
    printed = table.markdown(table.rows(outcomes, outcomes))
    assert "accepted (!)" in printed
    assert "values (!)" not in printed
    assert len(printed.splitlines()) == 4
    assert (
        "caught for the stated reason 1/2 with the static check, 1/2 without; honest refused 1/1"
        in table.summary(outcomes, outcomes)
    )
