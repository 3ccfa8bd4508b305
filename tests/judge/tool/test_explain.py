"""Verdicts in plain words."""

from dataclasses import replace

from judged import CHECKS, accepted, kernel, untimed

from kernelllm_judge.core.records import LACKS, Certificate, Check, Target
from kernelllm_judge.rules.catalog import NAMES
from kernelllm_judge.tool.explain import ADVICE, NEVER, explain

KERNEL = kernel(Target("layers.py", "Scale", 1, "0" * 64, "decorator"))


def test_every_rule_has_advice():
    assert set(ADVICE) == NAMES


def test_a_rejection_is_explained_by_its_rule_with_the_check_that_failed():
    failed = Check("output 0 at n=64", False, 0.5, 2e-06, "it is wrong")
    rejected = replace(
        untimed(KERNEL), verdict="rejected", rule="sizes", reason="it is wrong", checks=(*CHECKS, failed)
    )
    said = explain(rejected)
    assert said.startswith(
        "rejected: it is wrong.\nIt broke the rule `sizes`: outputs are right at the corners"
    )
    assert ADVICE["sizes"] in said and said.count(NEVER) == 1
    assert said.endswith("\noutput 0 at n=64: measured 0.5, allowed 2e-06.")


def test_an_acceptance_says_where_and_how_far():
    certified = replace(untimed(KERNEL), addresses=Certificate("proven for the domain", "sampled", "sampled"))
    assert "only a GPU tells its speed" in explain(certified)
    assert f"Addresses: {certified.addresses.in_words()}." in explain(certified)
    assert explain(accepted(KERNEL)).startswith("accepted, 1.83x eager")
    assert "It was judged on a GPU." in explain(accepted(KERNEL))


def test_what_is_undecided_is_not_called_accepted():
    undecided = replace(untimed(KERNEL), verdict="inconclusive", reason="in TF32 it is right")
    assert explain(undecided).endswith("no rule is broken. Do what the reason asks, and judge again.")
    lacking = replace(undecided, checks=(Check(LACKS, True, None, None, "a GPU"),))
    assert explain(lacking).endswith("no rule is broken. It needs a GPU.")
