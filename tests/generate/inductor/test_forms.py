"""The special forms: each is found by name, and says where it won."""

from __future__ import annotations

import inspect
import re

import pytest

from pytest_kernelllm.generate.inductor.forms.registry import FORMS
from pytest_kernelllm.generate.inductor.variants import VARIANTS

pytestmark = pytest.mark.slow

OTHERS = {"products", "convolutions", "large float32 products"}
"""Without the first two, some modules would have no kernel at all; the last one is tried in another place."""


def test_variants_name_forms_that_are_there() -> None:
    assert {name for variant in VARIANTS for name in (*variant.forms, variant.only) if name} == FORMS.keys()


@pytest.mark.parametrize("name", sorted(FORMS.keys() - OTHERS))
def test_each_says_where_it_won(name: str) -> None:
    """On five problems of KernelBench at least, or on a layer."""
    said = inspect.getdoc(type(FORMS[name])) or ""
    assert len(re.findall(r"\d/\d+", said)) >= 5 or "layer" in said
