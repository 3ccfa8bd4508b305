"""The special forms: each is found by name, and says where it won."""

from __future__ import annotations

import re

import pytest

from pytest_kernelllm.generate.inductor.forms.registry import FORMS, named
from pytest_kernelllm.generate.inductor.variants import VARIANTS

pytestmark = pytest.mark.slow

OTHERS = {"products", "convolutions", "averages over windows", "large float32 products"}
"""Without the first three, some modules would have no kernel at all; the last one is tried in another place."""


def test_variants_name_forms_that_are_there() -> None:
    assert {name for variant in VARIANTS for name in (*variant.applied, variant.only) if name} == FORMS.keys()


def test_each_is_applied_once() -> None:
    for variant in VARIANTS:
        applied = [form.name for early in (True, False) for form in named(variant.applied, early=early)]
        assert sorted(applied) == sorted(variant.applied)


@pytest.mark.parametrize("name", sorted(FORMS.keys() - OTHERS))
def test_each_says_where_it_won(name: str) -> None:
    """On five problems of KernelBench at least, or on a layer."""
    said = FORMS[name].explains
    assert len(re.findall(r"\d/\d+", said)) >= 5 or "layer" in said


def test_one_that_no_variant_names_is_not_applied() -> None:
    assert [form.name for form in named((), early=False)] == []
