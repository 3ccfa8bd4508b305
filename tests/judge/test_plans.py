"""How plans explain the sizes at which a case is timed."""

from pytest_kernelllm.core.records import Case, Domain, TensorSpec
from pytest_kernelllm.judge.plans import Plan

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
