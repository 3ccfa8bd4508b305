import pytest

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.probes import Limits, covers, elements, plan
from pytest_kernelllm.records import Case, Domain, TensorSpec


def domain(shape=("batch", "seq", 64), dims=None, attributes=None, dtype="float32"):
    dims = {"batch": (1, 16), "seq": (1, 512)} if dims is None else dims
    return Domain(
        {"x": TensorSpec(dtype, shape)},
        attributes or {"weight": TensorSpec("float32", (64,)), "eps": 1e-6},
        dims,
    )


CASE = Case("default", "float32", domain(), {"batch": 8, "seq": 256})


def test_the_declared_domain_is_covered_whole():
    assert covers(domain(), CASE) == {"batch": (1, 16), "seq": (1, 512)}


def test_a_kernel_for_fixed_sizes_covers_those():
    assert covers(domain((8, 256, 64), {}), CASE) == {"batch": (8, 8), "seq": (256, 256)}


def test_a_float_attribute_that_is_not_pinned_may_vary():
    assert isinstance(covers(domain(attributes={"weight": TensorSpec("float32", (64,))}), CASE), dict)


@pytest.mark.parametrize(
    ("support", "reason"),
    [
        (domain((8, 256, 32), {}), "another size"),
        (domain(dtype="bfloat16"), "made for `x` of bfloat16"),
        (domain((8, 64), {}), "2 dimensions"),
        (domain((32, "seq", 64)), "covers no size of `batch`"),
        (domain(attributes={"eps": 1e-6}), "does not say which `weight`"),
        (domain(attributes={"weight": TensorSpec("float32", (64,)), "eps": 1e-5}), "made for eps=1e-05"),
    ],
)
def test_what_is_not_covered_is_said(support, reason):
    assert reason in covers(support, CASE)


def test_probes_stay_inside_the_ranges_and_the_budget():
    budget = 1 << 12
    probes = plan(CASE, covers(domain(), CASE), (), Policy(), Limits(budget, 512), 0)
    assert len({p.seed for p in probes}) == len(probes)
    for probe in probes:
        sizes = dict(probe.sizes)
        assert 1 <= sizes["batch"] <= 16
        assert 1 <= sizes["seq"] <= 512
        assert elements(CASE.domain, sizes) <= budget


def test_corners_and_odd_sizes_are_tried():
    probes = plan(CASE, covers(domain(), CASE), ("eps",), Policy(), Limits(1 << 20, 512), 0)
    sizes = [dict(p.sizes) for p in probes]
    assert {"batch": 1, "seq": 1} in sizes
    assert {"batch": 16, "seq": 1} in sizes
    assert {"batch": 1, "seq": 512} in sizes
    assert {"batch": 7, "seq": 251} in sizes
    assert [p.nudged for p in probes].count(("eps",)) == 1
    assert {p.scale for p in probes} == {1.0, 1e-2, 8.0}


def test_fixed_shapes_give_seeds_and_scales_only():
    case = Case("default", None, domain((8, 64), {}), {})
    probes = plan(case, {}, (), Policy(), Limits(1 << 20, 512), 0)
    assert len(probes) == 5
