from dataclasses import replace

import pytest

from kernelllm_judge.core.domains import INTERPRETED_ELEMENTS, INTERPRETED_ROWS, covers, interpretable
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.plans import plan_case
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.catalog import RULES
from kernelllm_judge.rules.outputs import Nonfinite, Stress
from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.sizes import MOST_COMPARED, Sizes
from kernelllm_judge.truth.exhaust import read_kind
from kernelllm_judge.truth.probes import Limits, Probe, elements, fit, smaller
from kernelllm_judge.truth.stress import NEAR_DUPLICATES, PLANTED, TRANSFORMS
from kernelllm_judge.truth.variations import OTHERS_FOR_FIXED


def domain(shape=("batch", "seq", 64), dims=None, attributes=None, dtype="float32"):
    dims = {"batch": (1, 16), "seq": (1, 512)} if dims is None else dims
    return Domain(
        {"x": TensorSpec(dtype, shape)},
        attributes or {"weight": TensorSpec("float32", (64,)), "eps": 1e-6},
        dims,
    )


def supported(case, ranges, open_attributes, policy, limits, seed, nonfinite=True, compared=()):
    main = fit(case, ranges, limits.elements)
    return SupportedCase(case, ranges, main, open_attributes, policy, limits, seed, nonfinite, compared)


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
    assert len({p.seed for p in probes}) == len(probes) - 2  # but for the near-duplicates'
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
    assert [p.values for p in probes if p.perturbed == ("eps",)] == ["other", "quite different", "negative"]


def test_the_largest_sizes_that_ship_are_asked_together_where_programs_are_slow():
    dims = {"batch": (1, 1 << 20), "seq": (1, 1 << 20)}
    whole = Case("default", "float32", domain(("batch", "seq"), dims), {"batch": 8, "seq": 100})
    shipped = interpretable(whole.domain)
    policy = Policy()
    limits = Limits(policy.cpu_elements, policy.cpu_row)
    probes = plan(whole, covers(shipped, whole), (), policy, limits, 0)
    sizes = [dict(p.sizes) for p in probes if p.rule == "sizes"]
    assert {"batch": INTERPRETED_ROWS, "seq": INTERPRETED_ELEMENTS // INTERPRETED_ROWS} in sizes
    assert max(s["batch"] for s in sizes) == shipped.dims["batch"][1]
    assert max(s["seq"] for s in sizes) == shipped.dims["seq"][1]


def beside(*numbers, elements=1 << 20, seed=0, case=CASE):
    """The sizes that are only tried because a candidate compares something with these numbers."""
    limits = Limits(elements, 512)
    there = supported(case, covers(case.domain, case), (), Policy(), limits, seed, compared=numbers)
    without = {sizes_of(p) for p in plan_case(replace(there, compared=()), [Sizes()]).further}
    return {sizes_of(p) for p in plan_case(there, [Sizes()]).further} - without


def sizes_of(probe):
    return tuple(size for _, size in probe.sizes)


def test_both_sides_of_a_number_that_is_compared_are_tried():
    found = beside(100)
    assert {(1, 99), (1, 100), (1, 101), (8, 99), (8, 100), (8, 101)} <= found
    assert {(8, 12), (8, 13)} <= found  # 8 * 12 rows and 8 * 13
    assert {(1, 2)} <= found  # 128 elements; 64 are a row of the smallest sizes
    assert {sizes for sizes in found if sizes[0] > 16 or sizes[1] > 512} == set()


def test_products_of_dimensions_are_brought_to_the_number():
    assert {(1, 31), (1, 32)} <= beside(32 * 64 - 1)  # elements, in rows of 64
    assert {(8, 500), (8, 501)} <= beside(500 * 8)
    assert {(15, 256), (16, 256)} <= beside(16 * 256)


def test_a_dimension_that_comes_twice_grows_with_its_square():
    case = Case("default", "float32", domain(("n", "n"), {"n": (1, 512)}), {"n": 256})
    assert {(22,), (23,)} <= beside(500, case=case)  # 22² < 500 < 23²


def test_multiples_of_a_number_are_tried():
    assert {(1, 500), (8, 500), (1, 200), (8, 200)} <= beside(100)


def test_multiples_next_to_another_number_and_products_are_tried():
    assert {(8, 256), (8, 264), (1, 256), (1, 264)} & beside(8, 257)
    assert {(8, 384), (1, 384)} <= beside(128, 3)


@pytest.mark.parametrize(("number", "largest"), [(64, 5), (125, 6), (216, 7)])
def test_the_root_of_a_cube_is_exact(number, largest):
    case = Case("default", "float32", domain(("n", "n", "n"), {"n": (1, 64)}), {"n": 32})
    assert {(largest - 1,), (largest,)} <= beside(number, case=case)


def test_two_numbers_are_tried_together():
    found = set().union(*(beside(5, 300, seed=seed) for seed in range(10)))
    assert any(abs(batch - 5) <= 1 and abs(seq - 300) <= 1 for batch, seq in found)


def test_of_many_numbers_each_is_tried_before_another_one_twice():
    numbers = [17 * number for number in range(2, 26)]
    found = beside(*numbers)
    assert len(found) <= MOST_COMPARED
    assert all(beside(number) & found for number in numbers)


def test_of_many_numbers_some_are_tried_and_nobody_knows_which():
    first, second = (beside(*range(3, 2000), seed=seed) for seed in (1, 2))
    assert MOST_COMPARED - 3 < len(first) <= MOST_COMPARED
    assert len(first & second) < MOST_COMPARED / 2


def test_sizes_beside_a_number_fit_the_budget():
    assert max(batch * seq * 64 for batch, seq in beside(200, elements=1 << 12)) <= 1 << 12
    assert not beside(10**6)
    assert not beside(100, case=Case("default", None, domain((8, 64), {}), {}))


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


def test_a_near_duplicate_comes_right_after_what_it_hardly_differs_from():
    probes = plan(CASE, covers(domain(), CASE), (), Policy(), Limits(1 << 20, 512), 7)
    place = next(i for i, probe in enumerate(probes) if probe.rule == "near-duplicate")
    before, *similar = probes[place - 1 : place + 2]
    for each in similar:
        assert (each.sizes, each.seed, each.weights) == (before.sizes, before.seed, before.weights)
    where = "default, batch=8, seq=256, seed 8, inputs with other values in a few"
    assert [each.describe() for each in similar] == [f"{where} even places", f"{where} odd places"]


def test_fixed_shapes_give_seeds_and_kinds_of_inputs_only():
    case = Case("default", None, domain((8, 64), {}), {})
    probes = plan(case, {}, (), Policy(), Limits(1 << 20, 512), 0)
    assert {p.sizes for p in probes} == {()}
    assert {p.rule for p in probes} == {
        "values",
        "near-duplicate",
        "fixed inputs",
        "weights",
        "stress",
        "nonfinite",
    }


def test_a_gpu_sees_every_kind_of_stress_and_the_interpreter_a_few():
    policy = Policy()
    ranges = covers(domain(), CASE)
    on_gpu = plan(CASE, ranges, (), policy, Limits(policy.gpu_elements, policy.gpu_row), 0)
    assert {p.stress for p in handmade(on_gpu)} == set(Stress.all_kinds) < set(TRANSFORMS)
    assert {p.stress for p in on_gpu if p.rule == "nonfinite"} == set(Nonfinite.apart)
    interpreted = plan(CASE, ranges, (), policy, Limits(policy.cpu_elements, policy.cpu_row), 0)
    assert {p.stress for p in handmade(interpreted)} < set(Stress.all_kinds)
    assert len(interpreted) <= 27
    known = {*TRANSFORMS, *PLANTED, *NEAR_DUPLICATES, OTHERS_FOR_FIXED, ""}
    assert all(p.stress in known or read_kind(p.stress) for p in (*on_gpu, *interpreted))


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
    kinds = len(Stress.few_kinds) + len(Nonfinite.together) + 1  # and all values
    assert len(probes) == policy.seeds + len(NEAR_DUPLICATES) + 1 + 2 + kinds


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
