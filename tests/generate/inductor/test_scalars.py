"""Numbers in a text are taken for attributes only where traces with other values prove it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pytest_kernelllm.generate.inductor.scalars import free_scalars
from pytest_kernelllm.generate.inductor.trace import TraceError


class Compiler:
    """Writes a text with the values of attributes in it, as TorchInductor would."""

    def __init__(self, template: str, values: Mapping[str, float]) -> None:
        self.template, self.values, self.traces = template, values, 0

    def text(self, changed: Mapping[str, float]) -> str:
        self.traces += 1
        values = {**self.values, **changed}
        return re.sub(
            r"<([\w.-]+)>",
            lambda match: f"tl.full([1], {values.get(match[1], match[1])}, tl.float32)",
            self.template,
        )

    def freed(self) -> tuple[str, dict[str, str]]:
        free = free_scalars(self.text({}), self.values, self.text)
        return free.source, free.scalars


def test_all_attributes_are_found_by_one_more_trace() -> None:
    compiler = Compiler(
        "<eps> <net.1.eps> <1e-05> <scale>", {"eps": 1e-5, "net.1.eps": 1e-5, "scale": 2.0, "p": 0.5}
    )
    source, scalars = compiler.freed()
    assert source == (
        "tl.full([1], eps, tl.float32) tl.full([1], net_1_eps, tl.float32)"
        " tl.full([1], 1e-05, tl.float32) tl.full([1], scale, tl.float32)"
    )
    assert scalars == {"eps": "self.eps", "net_1_eps": "self.net.1.eps", "scale": "self.scale"}
    assert compiler.traces == 2


@pytest.mark.parametrize("name", ["normal_cdf"])
def test_an_attribute_may_have_the_name_of_a_function_that_a_kernel_gets(name: str) -> None:
    source, scalars = Compiler(f"libdevice.pow(tmp0, <{name}>)", {name: 2.7}).freed()
    [given] = scalars
    assert given != name
    assert scalars[given] == f"self.{name}"
    assert f"[1], {given}, " in source


def test_where_one_changes_more_than_numbers_the_others_are_found_alone() -> None:
    class Folding(Compiler):
        def text(self, changed: Mapping[str, float]) -> str:
            return super().text(changed) + (" folded" if "scale" in changed else "")

    compiler = Folding("<eps> <scale> <other>", {"eps": 1e-5, "scale": 2.0, "other": 3.0})
    assert compiler.freed()[1] == {"eps": "self.eps", "other": "self.other"}


def test_what_cannot_be_traced_with_another_value_stays() -> None:
    class Refusing(Compiler):
        def text(self, changed: Mapping[str, float]) -> str:
            if "scale" in changed:
                raise TraceError("no")
            return super().text(changed)

    compiler = Refusing("<eps> <scale>", {"eps": 1e-5, "scale": 2.0})
    assert compiler.freed()[1] == {"eps": "self.eps"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("eps", "eps"),
        ("net.0.eps", "net_0_eps"),
        ("0.eps", "arg_0_eps"),
        ("blocks.down-1.eps", "blocks_down_1_eps"),
        ("lambda", "arg_lambda"),
        ("x0", "x0_"),  # the text has an index of that name
    ],
)
def test_names_are_free_in_the_text(path: str, name: str) -> None:
    text, names = Compiler(f"x0 = xindex; <{path}>", {path: 0.25}).freed()
    assert names == {name: f"self.{path}"}
    assert f"tl.full([1], {name}, tl.float32)" in text


def test_no_number_no_trace() -> None:
    compiler = Compiler("<2.0>", {"eps": 1e-5})
    assert compiler.freed() == ("tl.full([1], 2.0, tl.float32)", {})
    assert compiler.traces == 1
