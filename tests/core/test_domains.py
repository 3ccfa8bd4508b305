"""What of a kernel's own SUPPORTS ships: nothing that judging the target's cases does not cover."""

import math
import re
from dataclasses import replace

import pytest

from kernelllm_judge.core.domains import (
    INTERPRETED_ELEMENTS,
    INTERPRETED_ROWS,
    beyond,
    interpretable,
    shipped,
)
from kernelllm_judge.core.records import Case, Domain, TensorSpec

WEIGHT = TensorSpec("float32", (64,))
DOMAIN = Domain(
    {"x": TensorSpec("float32", ("n", 64)), "y": TensorSpec("float32", ("n", "m")), "k": 3},
    {"weight": WEIGHT, "eps": 1e-6, "slopes[0]": 0.5},
    {"n": (2, 16), "m": (1, 8)},
)
CASE = Case("default", "float32", DOMAIN, {"n": 4, "m": 4})
OPEN = replace(DOMAIN, attributes={"weight": WEIGHT, "slopes[0]": 0.5})


def sizes(x, y, **dims):
    inputs = {"x": TensorSpec("float32", x), "y": TensorSpec("float32", y), "k": 3}
    return replace(DOMAIN, inputs=inputs, dims=dims)


@pytest.mark.parametrize(
    "support",
    [
        DOMAIN,
        OPEN,
        replace(DOMAIN, attributes={**DOMAIN.attributes, "another": 1}),
        sizes(("a", 64), ("a", "b"), a=(2, 4), b=(8, 8)),
        sizes((4, 64), (4, "m"), m=(1, 8)),
        sizes(("a", 64), (4, "m"), a=(4, 4), m=(1, 8)),
        sizes(("n", "w"), ("n", "m"), n=(2, 16), m=(1, 8), w=(64, 64)),
    ],
)
def test_what_lies_within_a_case_ships_as_it_is(support):
    assert beyond(support, CASE) == ""
    assert shipped([support], [CASE], on_gpu=True) == (support,)


def test_pins_of_the_case_ship_whether_a_kernel_names_them_or_not():
    pinned = {**DOMAIN.attributes, "value:table": "{'a': 1, }", "global:SCALE": "2.0", "same:b": "a"}
    case = replace(CASE, domain=replace(DOMAIN, attributes=pinned))
    assert "does not say which `value:table`" in beyond(DOMAIN, case)
    [part] = shipped([DOMAIN], [case], on_gpu=True)
    assert part.attributes == pinned
    assert beyond(part, case) == ""
    assert shipped([replace(DOMAIN, attributes={**pinned, "global:SCALE": "3.0"})], [case], on_gpu=True) == ()


def test_a_float_that_cannot_be_varied_is_not_left_open():
    for value in (math.inf, -math.inf, math.nan):
        case = replace(CASE, domain=replace(DOMAIN, attributes={**DOMAIN.attributes, "eps": value}))
        assert "which `eps`" in beyond(OPEN, case)
        assert beyond(case.domain, case) == ""
        assert "made for eps=" in beyond(DOMAIN, case)


@pytest.mark.parametrize(
    ("support", "why"),
    [
        (replace(DOMAIN, grad=True), "grad=True"),
        (
            replace(DOMAIN, dims={"n": (1, 1 << 30), "m": (1, 9)}),
            "from 1 to 1073741824, where the case has 2 to 16",
        ),
        (sizes(("a", 64), ("b", "m"), a=(2, 16), b=(2, 16), m=(1, 8)), "tensors that differ in `n`"),
        (sizes((4, 64), (5, "m"), m=(1, 8)), "tensors that differ in `n`|no size of `n`"),
        (sizes(("n", "w"), ("n", "m"), n=(2, 16), m=(1, 8), w=(1, 64)), "sizes of `x` from 1 to 64"),
    ],
)
def test_what_goes_beyond_is_said_and_cut_off(support, why):
    assert re.search(why, beyond(support, CASE))
    for part in shipped([support], [CASE], on_gpu=True):
        assert beyond(part, CASE) == ""


def test_what_is_cut_down_keeps_its_own_limits_and_open_floats():
    greedy = replace(OPEN, grad=True, dims={"n": (1, 8), "m": (4, 99)})
    assert shipped([greedy], [CASE], on_gpu=True) == (replace(OPEN, dims={"n": (2, 8), "m": (4, 8)}),)


def test_each_case_gets_its_part_of_a_domain():
    wide = replace(CASE, name="wide", domain=replace(DOMAIN, dims={"n": (32, 64), "m": (1, 8)}))
    both = replace(DOMAIN, dims={"n": (1, 100), "m": (1, 8)})
    assert shipped([both, both], [CASE, wide], on_gpu=True) == (DOMAIN, wide.domain)


@pytest.mark.parametrize(
    "change", [{"training": True}, {"inputs": {"x": DOMAIN.inputs["x"]}}, {"attributes": {}}]
)
def test_what_no_case_covers_is_left_out(change):
    assert shipped([replace(DOMAIN, **change)], [CASE], on_gpu=True) == ()
    assert shipped([DOMAIN, replace(DOMAIN, **change)], [CASE], on_gpu=True) == (DOMAIN,)


@pytest.mark.parametrize(
    ("shapes", "dims", "ends"),
    [
        ([("n",)], {"n": (1, 1 << 20)}, {"n": INTERPRETED_ELEMENTS}),
        ([("n", 64)], {"n": (1, 65536)}, {"n": INTERPRETED_ROWS}),
        ([("n", "m")], {"n": (1, 65536), "m": (1, 512)}, {"n": INTERPRETED_ROWS, "m": 512}),
        ([("n", 3, "m")], {"n": (1, 64), "m": (1, 65536)}, {"n": 21, "m": 1040}),
        ([("b", "s", 4096)], {"b": (1, 64), "s": (16, 4096)}, {"b": 1, "s": 16}),
        ([("n",), ("m",)], {"n": (1, 65536), "m": (1, 65536)}, {"n": 256, "m": 256}),
        ([("n", 1 << 20)], {"n": (2, 9)}, {"n": 2}),
        ([("n", 64)], {"n": (200, 300)}, {"n": 200}),
        ([("n", "int64")], {"n": (1, 65536)}, {"n": INTERPRETED_ROWS}),
        ([("n", "m", "bool")], {"n": (1, 65536), "m": (1, 512)}, {"n": INTERPRETED_ROWS, "m": 512}),
        ([], {}, {}),
    ],
)
def test_without_a_gpu_sizes_end_where_they_can_be_asked_together(shapes, dims, ends):
    inputs = {}
    for i, shape in enumerate(shapes):
        *sizes, dtype = shape if shape[-1] in ("int64", "bool") else (*shape, "float32")
        inputs[f"x{i}"] = TensorSpec(dtype, tuple(sizes))
    domain = Domain(inputs, {}, dims)
    case = Case("default", "float32", domain, {})
    cut = interpretable(domain, case)
    assert {name: high for name, (_, high) in cut.dims.items()} == ends
    assert {name: low for name, (low, _) in cut.dims.items()} == {n: low for n, (low, _) in dims.items()}
    assert interpretable(cut, case) == cut
    assert shipped([domain], [case], on_gpu=False) == (cut,)
    assert shipped([domain], [case], on_gpu=True) == (domain,)


@pytest.mark.parametrize(("own", "ends"), [({"n": 6, "m": 100}, 6), ({"n": 6, "m": 30_000}, 1), ({}, 1)])
def test_a_cut_domain_holds_the_cases_own_sizes_where_they_can_be_interpreted(own, ends):
    domain = Domain({"x": TensorSpec("float32", ("n", "m", 100))}, {}, {"n": (1, 512), "m": (1, 32_768)})
    cut = interpretable(domain, Case("default", "float32", domain, own))
    assert cut.dims["n"][1] >= ends
    if ends > 1:
        assert all(low <= own[name] <= high for name, (low, high) in cut.dims.items())
    elements = cut.dims["n"][1] * cut.dims["m"][1] * 100
    assert elements <= INTERPRETED_ELEMENTS
