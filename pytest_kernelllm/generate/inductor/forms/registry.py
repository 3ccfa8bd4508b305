"""The special forms by name, in the order in which they change a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pytest_kernelllm.generate.inductor.forms.convolutions import Convolutions, Float32Convolutions
from pytest_kernelllm.generate.inductor.forms.few_rows import FewRows
from pytest_kernelllm.generate.inductor.forms.form import Form
from pytest_kernelllm.generate.inductor.forms.one_pass import OnePass
from pytest_kernelllm.generate.inductor.forms.products import Float32Products, LargeProducts, Products
from pytest_kernelllm.generate.inductor.forms.transposed import Transposed
from pytest_kernelllm.generate.inductor.forms.windows import Averages, Depthwise

EARLY: tuple[Form, ...] = (Averages(), Depthwise())
"""Those that change a graph before Inductor's own passes, which simplify what they write."""

FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        *EARLY,
        FewRows(),
        Products(),
        Float32Products(),
        LargeProducts(),
        Transposed(),
        Convolutions(),
        Float32Convolutions(),
        OnePass(),
    )
}


def named(names: Iterable[str], *, early: bool) -> Iterator[Form]:
    """Yields the named forms that change a graph before Inductor's own passes, or those that change it after them."""
    for name, form in FORMS.items():
        if name in names and (form in EARLY) == early:
            yield form
