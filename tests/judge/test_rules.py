"""The rules are the ones that people read about."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.rules import RULES, SWITCHABLE

TRUST = Path(__file__).parents[2] / "docs" / "trust.md"


def test_the_documentation_lists_every_rule_in_its_words():
    rows = [line for line in TRUST.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for rule, words in RULES.items():
        assert f"| {rule} | {words} |" in rows


def test_only_known_rules_can_be_switched_off():
    assert replace(Policy(), disabled=frozenset({"decoy"})).disabled == {"decoy"}
    assert "speed" not in SWITCHABLE
    with pytest.raises(ValueError, match="no rule that can be switched off: speed"):
        replace(Policy(), disabled=frozenset({"speed"}))
