"""What a worker reports of the decisions in kernels, and what stays open."""

import pytest

from kernelllm_judge.coverage.device import MOST_SITES, Sites

SOURCE = "a = 1\ny = tl.where(x > 1e9, 0.0, x)\n"


def report(kernel="kernel", places=((2, 13, 20),), kind=">", threshold=1e9, **fields):
    return {
        "site": [kernel, [list(place) for place in places], kind, threshold],
        "given": False,
        "whole": False,
        "decided": False,
        "yes": False,
        "no": True,
        "near": [3.5, 1e9],
    } | fields


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {},
        [7],
        [report(kind="spaceship")],
        [report(kernel=3)],
        [report(yes=1)],
        [report(places=[])],
        [report(places=[[2, 13]])],
        [report(places=[[2, 13, "20"]])],
        [report(near=[1.0])],
        [report(near=[1.0, float("nan")])],
        [report(threshold="1e9")],
        [report()] * (MOST_SITES + 1),
    ],
)
def test_an_invalid_report_is_refused(reported):
    with pytest.raises(ValueError, match="no "):
        Sites().see(reported, None)


def test_outcomes_of_several_calls_add_up():
    sites = Sites()
    sites.see([report()], "first")
    [site] = sites.open(nonfinite=True)
    assert site.describe(SOURCE) == "line 2: `x > 1e9` was never true"
    assert site.pairs == [("first", 3.5, 1e9)]
    sites.see([report(yes=True, no=False, near=None)], "second")
    assert sites.open(nonfinite=True) == []


def test_of_one_line_what_decides_the_rest_is_open_alone():
    sites = Sites()
    sites.see([report(kind="where", places=[[2, 4, 30]], near=None), report()], None)
    assert [site.kind for site in sites.open(nonfinite=True)] == [">"]
    sites.see([report(yes=True)], None)
    [site] = sites.open(nonfinite=True)
    assert site.describe(SOURCE) == "line 2: `tl.where(x > 1e9, 0.0, x)` never took its first choice"


@pytest.mark.parametrize("calls", [[[5, 21]], [[5, 21], [6, 21]]])
def test_an_argument_that_is_always_the_same_is_no_variable(calls):
    sites = Sites()
    for near in calls:
        sites.see([report(kind="==", given=True, near=near)], None)
    assert len(sites.open(nonfinite=True)) == len(calls) - 1


def test_a_search_for_nan_is_open_where_nan_counts():
    sites = Sites()
    sites.see([report(kind="!= itself")], None)
    assert sites.open(nonfinite=True)
    assert not sites.open(nonfinite=False)


def test_a_cast_needs_a_value_that_it_loses_and_no_other():
    sites = Sites()
    sites.see([report(kind="cast", yes=True, no=False)], None)
    assert not sites.open(nonfinite=True)
    sites.see([report(kind="cast", places=[[1, 0, 5]])], None)
    [site] = sites.open(nonfinite=True)
    assert site.describe(SOURCE).endswith("`a = 1` was never given a value that it loses")


def test_an_outcome_that_came_late_is_doubtful_where_it_may_make_no_difference():
    sites = Sites()
    sites.see([report()], "first")
    assert sites.doubtful() == []
    sites.see([report(yes=True)], "zeros", plain=False)
    [site] = sites.doubtful()
    assert site.shown == ["zeros"]
    assert site.late
    sites.see([report(yes=True)], "values")
    assert sites.doubtful() == []
