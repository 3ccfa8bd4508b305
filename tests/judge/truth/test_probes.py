import pytest

from kernelllm_judge.core.domains import INTERPRETED_ELEMENTS, INTERPRETED_ROWS, covers, interpretable
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.plans import plan_case
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.catalog import RULES
from kernelllm_judge.rules.outputs import Stress
from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.truth.exhaust import read_kind
from kernelllm_judge.truth.probes import Limits, Probe, elements, fit, smaller
from kernelllm_judge.truth.stress import TRANSFORMS, planted
from kernelllm_judge.truth.variations import OTHERS_FOR_FIXED


def domain(shape=("batch", "seq", 64), dims=None, attributes=None, dtype="float32"):
    dims = {"batch": (1, 16), "seq": (1, 512)} if dims is None else dims
    return Domain(
        {"x": TensorSpec(dtype, shape)},
        attributes or {"weight": TensorSpec("float32", (64,)), "eps": 1e-6},
        dims,
    )


def supported(case, ranges, open_attributes, policy, limits, seed, nonfinite=True):
    main = fit(case, ranges, limits.elements)
    return SupportedCase(case, ranges, main, open_attributes, policy, limits, seed, nonfinite)


def plan(*args, **kwargs):
    return plan_case(supported(*args, **kwargs), RULES).probes


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
def test_what_is_not_covered_is_named(support, reason):
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
    assert {"batch": 16, "seq": 512} in sizes
    [odd] = [
        sizes
        for p in probes
        if p.rule == "sizes" and min((sizes := dict(p.sizes)).values()) > 1 and sizes["batch"] < 16
    ]
    assert odd["batch"] in (5, 7)
    assert odd["seq"] in range(131, 256, 2)
    assert [p.values for p in probes if p.perturbed == ("eps",)] == ["quite different", "negative"]


def test_the_largest_sizes_that_ship_are_asked_together_where_programs_are_slow():
    dims = {"batch": (1, 1 << 20), "seq": (1, 1 << 20)}
    whole = Case("default", "float32", domain(("batch", "seq"), dims), {"batch": 8, "seq": 100})
    shipped = interpretable(whole.domain, whole)
    policy = Policy()
    limits = Limits(policy.cpu_elements, policy.cpu_row)
    probes = plan(whole, covers(shipped, whole), (), policy, limits, 0)
    sizes = [dict(p.sizes) for p in probes if p.rule == "sizes"]
    assert {"batch": INTERPRETED_ROWS, "seq": INTERPRETED_ELEMENTS // INTERPRETED_ROWS} in sizes
    assert max(s["batch"] for s in sizes) == shipped.dims["batch"][1]
    assert max(s["seq"] for s in sizes) == shipped.dims["seq"][1]


def test_ever_smaller_sizes_stay_inside_the_ranges():
    ranges = {"batch": (2, 16), "seq": (64, 512)}
    sizes = list(smaller(CASE, ranges, CASE.sizes))
    assert sizes == [
        {"batch": 8, "seq": 128},
        {"batch": 8, "seq": 64},
        {"batch": 4, "seq": 64},
        {"batch": 2, "seq": 64},
    ]
    assert not list(smaller(CASE, {"batch": (8, 8), "seq": (256, 512)}, CASE.sizes))


def test_nobody_knows_the_primes_before():
    found = set()
    for seed in range(20):
        probes = plan(CASE, covers(domain(), CASE), (), Policy(), Limits(1 << 20, 512), seed)
        found |= {p.sizes for p in probes if p.rule == "sizes"}
    assert len(found) > 10
    assert all(dict(sizes)["seq"] > 128 for sizes in found if dict(sizes)["seq"] not in (1, 512))
    assert {dict(sizes)["seq"] % 2 for sizes in found if dict(sizes)["seq"] not in (1, 512)} == {1}


def test_a_dimension_without_a_prime_below_has_its_low_end():
    case = Case("default", None, domain(dims={"batch": (1, 2), "seq": (14, 16)}), {"batch": 2, "seq": 16})
    probes = plan(case, covers(case.domain, case), (), Policy(), Limits(1 << 20, 512), 0)
    assert {dict(p.sizes)["seq"] for p in probes if p.rule == "sizes"} == {14}


def test_fixed_shapes_give_seeds_and_kinds_of_inputs_only():
    case = Case("default", None, domain((8, 64), {}), {})
    probes = plan(case, {}, (), Policy(), Limits(1 << 20, 512), 0)
    assert {p.sizes for p in probes} == {()}
    assert {p.rule for p in probes} == {
        "values",
        "fixed inputs",
        "weights",
        "stress",
        "nonfinite",
    }


def test_a_gpu_and_the_interpreter_see_the_same_kinds_of_stress():
    policy = Policy()
    ranges = covers(domain(), CASE)
    for limits in (Limits(policy.gpu_elements, policy.gpu_row), Limits(policy.cpu_elements, policy.cpu_row)):
        probes = plan(CASE, ranges, (), policy, limits, 0)
        assert {p.stress for p in handmade(probes)} == set(Stress.mixed) < set(TRANSFORMS)
        assert [p.stress for p in probes if p.rule == "nonfinite"] == ["NaN and ±inf"]
        assert len(probes) <= 29
        known = {*TRANSFORMS, OTHERS_FOR_FIXED, ""}
        assert all(p.stress in known or planted(p.stress) or read_kind(p.stress) for p in probes)


def handmade(probes):
    return [p for p in probes if p.rule == "stress" and not read_kind(p.stress)]


def test_all_values_may_be_asked_of_the_largest_inputs():
    policy = Policy()
    on_gpu, interpreted = (
        [p for p in plan(CASE, covers(domain(), CASE), (), policy, limits, 0) if read_kind(p.stress)]
        for limits in (
            Limits(policy.gpu_elements, policy.gpu_row),
            Limits(policy.cpu_elements, policy.cpu_row),
        )
    )
    assert [read_kind(p.stress).parts for p in on_gpu] == [1]
    assert elements(CASE.domain, dict(on_gpu[0].sizes)) == 16 * 512 * 64
    assert {read_kind(p.stress).parts for p in interpreted} == {len(interpreted)} == {8}
    assert {elements(CASE.domain, dict(p.sizes)) for p in interpreted} == {1 << 13}


def test_stress_is_at_small_sizes_with_several_rows():
    policy = Policy()
    for limits in (Limits(policy.gpu_elements, policy.gpu_row), Limits(policy.cpu_elements, policy.cpu_row)):
        probes = plan(CASE, covers(domain(), CASE), (), policy, limits, 0)
        for probe in probes:
            if probe.rule in ("stress", "nonfinite") and not read_kind(probe.stress):
                sizes = dict(probe.sizes)
                assert elements(CASE.domain, sizes) <= max(1 << 16, policy.cpu_elements)
                assert sizes["batch"] * sizes["seq"] >= policy.stress_rows
                assert min(sizes.values()) >= 2


def test_what_cannot_be_made_small_is_stressed_a_little():
    policy = Policy()
    case = Case("default", None, domain((1 << 15, 1 << 15), {}), {})
    probes = plan(case, {}, (), policy, Limits(policy.gpu_elements, policy.gpu_row), 0)
    kinds = len(Stress.mixed) + 1 + 1  # NaN, and all values
    assert len(probes) == policy.seeds + 1 + 4 + kinds


def test_inputs_known_to_be_finite_are_not_made_otherwise():
    probes = plan(CASE, covers(domain(), CASE), (), Policy(), Limits(1 << 20, 512), 0, nonfinite=False)
    assert "nonfinite" not in {p.rule for p in probes}


def test_only_values_are_tried_with_several_weights():
    policy = Policy()
    probes = plan(CASE, covers(domain(), CASE), ("eps",), policy, Limits(1 << 20, 512), 0)
    assert len({p.weights for p in probes}) == policy.seeds
    assert len({p.weights for p in probes if p.rule != "values"}) == 1


def test_a_probe_is_described_in_words():
    probe = Probe("default", (("n", 7),), 3, "sparse", rule="stress")
    assert probe.describe() == "default, n=7, seed 3, sparse inputs"
    probe = Probe("default", (), 3, "NaN", rule="nonfinite")
    assert probe.describe() == "default, seed 3, inputs with NaN"


def test_long_rows_are_tried_and_those_just_above_a_power_of_two():
    case = Case(
        "default", None, domain(("n", "width"), {"n": (1, 4096), "width": (1, 5000)}), {"n": 4, "width": 100}
    )
    policy = Policy()
    limits = Limits(policy.cpu_elements, policy.cpu_row)
    probes = plan(case, covers(case.domain, case), (), policy, limits, 0)
    sizes = [dict(p.sizes) for p in probes if p.rule == "sizes"]
    assert {"n": 1, "width": policy.cpu_row} in sizes
    assert {"n": 1, "width": policy.cpu_row // 2 + 1} in sizes
