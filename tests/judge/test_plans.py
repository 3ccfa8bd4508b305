"""How plans explain the sizes at which a case is timed."""

from dataclasses import replace

import pytest

from kernelllm_judge.core.domains import interpretable
from kernelllm_judge.core.kernel_module import format_supports
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.findings import Decision
from kernelllm_judge.plans import Plan, make_plans, sizes_asked
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.catalog import RULES

DOMAIN = Domain({"x": TensorSpec("float32", ("batch", "seq"))}, {}, {"batch": (1, 64), "seq": (1, 512)})
CASE = Case("default", "float32", DOMAIN, {"batch": 8, "seq": 256})


def plan(**sizes):
    return Plan(CASE, (), (), DOMAIN.dims, {**CASE.sizes, **sizes})


def test_a_case_s_own_sizes_need_no_note():
    assert plan().note({"batch": 8, "seq": 256}) == ""


def test_smaller_sizes_are_noted_with_the_reason():
    note = plan().note({"batch": 2, "seq": 256})
    assert note == "timed at batch=2, not 8: there was no memory for more"


def test_a_kernel_that_supports_no_other_sizes_is_noted():
    note = plan(seq=128).note({"batch": 8, "seq": 128})
    assert note == "timed at seq=128, not 256: the kernel supports no others"


def plans(*supports):
    return make_plans(format_supports(supports), [CASE], [], Policy(), on_gpu=False, seed=0, nonfinite=True)


def test_every_domain_that_ships_is_asked_about():
    short = replace(DOMAIN, dims={"batch": (1, 64), "seq": (1, 16)})
    assert [plan.ranges for plan in plans(short, DOMAIN, short)] == [short.dims, DOMAIN.dims]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"grad": True}, "made for grad=True"),
        ({"training": True}, "made for training=True"),
        (
            {"dims": {"batch": (1, 65), "seq": (1, 512)}},
            "sizes of `x` from 1 to 65, where the case has 1 to 64",
        ),
        ({"dims": {}}, "gives no range for the dimension `batch`"),
    ],
)
def test_a_candidate_that_claims_more_than_the_cases_cover_is_refused(change, why):
    with pytest.raises(Decision) as refused:
        plans(DOMAIN, replace(DOMAIN, **change))
    assert (refused.value.verdict, refused.value.rule) == ("rejected", "supports")
    assert "domain 2 of its SUPPORTS lies within none of the target's cases (default: " in str(refused.value)
    assert why in str(refused.value)


LONG = replace(DOMAIN, dims={"batch": (1, 64), "seq": (1, 1 << 20)})
LONG_CASE = replace(CASE, domain=LONG)


def long_plans(domain, **how):
    return make_plans(
        format_supports([domain]),
        [LONG_CASE],
        RULES,
        Policy(),
        **{"on_gpu": False, "seed": 0, "nonfinite": True, **how},
    )


def test_larger_sizes_than_are_asked_are_refused_without_a_gpu():
    with pytest.raises(
        Decision, match="larger sizes than are asked without a GPU: seq=1024 at most"
    ) as refused:
        long_plans(LONG)
    assert (refused.value.verdict, refused.value.rule) == ("rejected", "supports")
    assert long_plans(LONG, on_gpu=True)[0].ranges == LONG.dims


@pytest.mark.parametrize(
    "domain", [interpretable(LONG, LONG_CASE), replace(LONG, dims={"batch": (3, 60), "seq": (2, 9)})]
)
def test_all_that_ships_without_a_gpu_is_asked(domain):
    [plan] = long_plans(domain)
    ends = [dict(probe.sizes) for probe in plan.probes]
    assert {name: low for name, (low, _) in domain.dims.items()} in ends
    assert {name: high for name, (_, high) in domain.dims.items()} in ends
    asked = ", ".join(f"{name}={high}" for name, (_, high) in domain.dims.items())
    assert sizes_asked([plan]) == f"sizes up to {asked} were asked here; a GPU asks more"


def test_a_target_that_is_asked_whole_needs_no_note():
    [plan] = make_plans(
        format_supports([DOMAIN]), [CASE], RULES, Policy(), on_gpu=False, seed=0, nonfinite=True
    )
    assert sizes_asked([plan]) == ""


def test_an_adopted_kernel_may_claim_what_a_gpu_has_shown():
    [plan] = long_plans(LONG, adopted=True)
    assert plan.ranges == interpretable(LONG, LONG_CASE).dims


def test_a_candidate_that_claims_nothing_is_refused():
    with pytest.raises(Decision, match="SUPPORTS is empty"):
        plans()


WIDE = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x_ptr, n, B: tl.constexpr):\n    tl.store(x_ptr + {}, 0.0)\n"


@pytest.mark.parametrize(
    ("offset", "fits"), [("tl.program_id(0) * B", False), ("tl.program_id(0).to(tl.int64) * B", True)]
)
def test_sizes_beyond_32_bit_offsets_are_for_kernels_with_64(offset, fits):
    case = replace(CASE, dims_within_32_bits={"batch": (1, 64), "seq": (1, 128)})
    near = replace(DOMAIN, dims=case.dims_within_32_bits)
    for domain, accepted in ((near, True), (DOMAIN, fits)):
        source = WIDE.format(offset) + format_supports([domain])
        arguments = ([case], [], Policy())
        if accepted:
            (plan,) = make_plans(source, *arguments, on_gpu=False, seed=0, nonfinite=True)
            assert plan.ranges == domain.dims
        else:
            with pytest.raises(
                Decision, match="made for sizes of `x` from 1 to 512, where the case has 1 to 128"
            ):
                make_plans(source, *arguments, on_gpu=False, seed=0, nonfinite=True)
