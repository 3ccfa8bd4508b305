"""The rules are those that people read about, grouped by what they ask."""

import importlib
from pathlib import Path

import pytest

from kernelllm_judge import rules
from kernelllm_judge.rules.catalog import NAMES, RULES, SWITCHABLE, without
from kernelllm_judge.rules.outputs import KindsRule, OutputRule
from kernelllm_judge.rules.rule import Rule


def test_every_rule_of_the_folder_is_in_the_catalog_once():
    folder = Path(rules.__path__[0])
    found = [
        kind
        for file in folder.glob("*.py")
        for kind in vars(importlib.import_module(f"{rules.__name__}.{file.stem}")).values()
        if isinstance(kind, type) and issubclass(kind, Rule) and kind not in (Rule, OutputRule, KindsRule)
    ]
    assert {type(rule) for rule in RULES} == set(found)
    assert len(RULES) == len(NAMES)


def test_a_rule_states_what_holds_in_a_clause_that_fits_a_table():
    for rule in RULES:
        assert rule.says and "|" not in rule.says and not rule.says.endswith(".")


def test_only_known_rules_can_be_left_out():
    assert NAMES - {rule.name for rule in without({"decoy"})} == {"decoy"}
    assert "speed" not in SWITCHABLE
    with pytest.raises(ValueError, match="not a rule that can be switched off: speed"):
        without({"speed"})
