"""Which directions are tried for a decision that fell one way only."""

import pytest

from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.coverage.device import Sites
from kernelllm_judge.directing import MOST_TRIES, Search, refuse
from kernelllm_judge.findings import Decision
from kernelllm_judge.plans import Plan
from kernelllm_judge.truth.directed import Direction
from kernelllm_judge.truth.probes import Probe

MAIN = Probe("default", (("n", 64),), 1, weights=1)


def search(reports, probe=MAIN):
    domain = Domain(inputs={"x": TensorSpec("float32", ("n",))}, dims={"n": (1, 4096)}, attributes={})
    case = Case("default", "float32", domain, {"n": 64})
    sites = Sites()
    for report in reports:
        sites.see([report], probe)
    plan = Plan(case, (MAIN,), (), {"n": (1, 4096)}, {"n": 64}, small={"n": 32}, most=8192)
    return Search(plan, sites)


def report(kind=">", threshold=1e9, near=(3.0, 1e9), **fields):
    flags = {"given": False, "whole": False, "decided": False, "yes": False, "no": True}
    return {"site": ["kernel", [[1, 0, 5]], kind, threshold], "near": list(near), **flags, **fields}


def tried(found):
    return [probe.directed for probe in found.probes()]


def test_a_factor_takes_an_operand_across_its_threshold():
    first = tried(search([report()]))[0]
    assert first.way == "×"
    assert 3.0 * first.amount > 1e9


def test_an_equality_is_met_exactly():
    assert tried(search([report("==", 3.25, (1.0, 3.25))]))[0] == Direction("values =", 3.25)


def test_what_counts_others_is_sought_by_what_is_always_tried():
    assert tried(search([report("==", 0.0, (3.0, 0.0), decided=True)]))[0] == Direction("equal")


def test_an_argument_is_sought_at_the_size_that_makes_it_so():
    found = search([report("==", 21.0, near, given=True) for near in ((64, 21), (63, 21))])
    assert 21 in [dict(probe.sizes)["n"] for probe in found.probes()]


def test_the_search_ends():
    assert len(list(search([report()]).probes())) <= MOST_TRIES


def test_an_index_that_the_original_refuses_is_no_open_decision():
    found = search([report("<", None, (3, 10), whole=True, yes=True, no=False)])
    ways = tried(found)
    assert Direction("values =", 11) in ways
    assert all(way.amount > 10 for way in ways)
    assert found.left() == []
    found.ran.append(found.tried[0])
    assert found.left() != []


def test_what_is_left_is_named():
    with pytest.raises(Decision, match="line 1: `x > y` was never true; no input or weight") as ended:
        refuse("x > y", search([report()]).left())
    assert ended.value.verdict == "inconclusive"
