"""The special forms by name, in the order in which they change a graph."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_kernelllm.generate.inductor.forms.attention import Attention
from pytest_kernelllm.generate.inductor.forms.convolutions import Convolutions, Float32Convolutions
from pytest_kernelllm.generate.inductor.forms.few_rows import FewRows
from pytest_kernelllm.generate.inductor.forms.form import Form
from pytest_kernelllm.generate.inductor.forms.one_pass import OnePass
from pytest_kernelllm.generate.inductor.forms.products import Float32Products, LargeProducts, Products
from pytest_kernelllm.generate.inductor.forms.transposed import Transposed
from pytest_kernelllm.generate.inductor.forms.windows import Depthwise

FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        Depthwise(),
        FewRows(),
        Attention(),
        Products(),
        Float32Products(),
        LargeProducts(),
        Transposed(),
        Convolutions(),
        Float32Convolutions(),
        OnePass(),
    )
}
