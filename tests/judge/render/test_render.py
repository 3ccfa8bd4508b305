from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest
from rendering import COMPLETIONS, completion, live, rendered

from kernelllm_judge.core.kernel_module import format_supports, read_supports, unmodified
from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.render.undefined import require_defined

MODULE = '''"""Adds.

A second line."""

import torch
import triton
import triton.language as tl
import math

# kept


def forward(self, x, y):
    return x + y
'''
DOMAINS = tuple(case.domain for case in live("Add").cases)


def test_a_complete_kernel_module_passes_as_it_is_under_the_targets_header() -> None:
    source = MODULE.replace("# kept", format_supports(DOMAINS))
    candidate = rendered("Add", source, format="kernel_module").source
    assert candidate.startswith("# Triton kernel for layers.py::Add\n")
    assert candidate.endswith(source)
    assert unmodified(candidate)
    # Made for another source, it is signed anew.
    older = candidate.replace("# source hash: ", "# source hash: 0")
    assert rendered("Add", older, format="kernel_module").source == candidate
    assert rendered("Add", "# mine\n" + source, format="kernel_module").source.endswith("# mine\n" + source)


def test_supports_is_added_where_it_is_missing() -> None:
    source = rendered("Add", MODULE, format="kernel_module").source
    assert read_supports(source) == DOMAINS
    assert ast.get_docstring(ast.parse(source)) == "Adds.\n\nA second line."
    assert "import math" in source and "# kept" in source
    assert source.startswith("# Triton kernel for layers.py::Add\n# written by: files\n")


def test_supports_of_its_own_is_cut_down_to_what_is_judged() -> None:
    greedy = [replace(DOMAINS[0], grad=True), replace(DOMAINS[0], training=True), *DOMAINS]
    source = MODULE.replace("# kept", format_supports(greedy))
    candidate = rendered("Add", source, format="kernel_module").source
    assert read_supports(candidate) == DOMAINS and unmodified(candidate)
    assert candidate.endswith(MODULE.replace("# kept", format_supports(DOMAINS)))
    # Where nothing would be left, it stays, and the judge says what is wrong with it.
    source = MODULE.replace("# kept", format_supports(greedy[1:2]))
    assert rendered("Add", source, format="kernel_module").source.endswith(source)


def test_model_and_revision_are_in_the_header() -> None:
    text = (COMPLETIONS / "hand_add.txt").read_text()
    candidate = rendered("Add", text, generator="kernelllm", model="m", revision="r", index=3, note="warm")
    assert "# written by: kernelllm, m@r\n" in candidate.source
    assert "# licence: written by the model m, whose licence" in candidate.source
    assert (candidate.generator, candidate.note, candidate.target) == ("kernelllm", "warm", "layers.py::Add")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MODULE.replace("x, y)", "x, z)"),
            r"Line 13: forward takes \(self, x, z\); the target needs \(self, x, y\)",
        ),
        (MODULE.replace("def forward", "def backward"), "no top-level function `forward`"),
        (MODULE.replace("# kept", "SUPPORTS = 3"), "cannot be read: line 10"),
        (MODULE.replace("# kept", "SUPPORTS = ()\nSUPPORTS += ({},)"), "line 11: SUPPORTS is named again"),
        (MODULE.replace("return", "return ("), "does not parse: line 14|does not parse: line 15"),
    ],
)
def test_broken_kernel_modules_are_named(text: str, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        rendered("Add", text, format="kernel_module")


def test_no_text_gives_the_generators_reason() -> None:
    with pytest.raises(RenderError, match=r"^the server said no$"):
        render(completion("  \n", note="the server said no"), live("Add"))


def test_code_nested_beyond_measure() -> None:
    text = f"class ModelNew:\n    def forward(self, x):\n        return {'-' * 1200}x\n"
    with pytest.raises(RenderError, match=r"nested too deeply|cannot be parsed"):
        rendered("Scale", text)


def test_prose_is_refused() -> None:
    with pytest.raises(RenderError, match="holds no code"):
        rendered("Add", "I would rather not.")


def test_a_failure_of_the_renderer_is_a_refusal_in_one_sentence() -> None:
    with pytest.raises(RenderError) as refused:
        render(completion(MODULE, format="kernel_module"), None)
    sentence = "The renderer failed on this completion: AttributeError: 'NoneType' object has no attribute 'signature'"
    place = r"\(render\.py, line \d+, in \w+\)"
    assert re.fullmatch(rf"{re.escape(sentence)} {place}; please report it\.", str(refused.value))
    assert isinstance(refused.value.__cause__, AttributeError)


def test_what_does_not_become_python_is_refused_with_its_line() -> None:
    with pytest.raises(RenderError, match=r"is not Python \(invalid syntax\): x = 1 \+\* 2"):
        require_defined("def forward(self):\n    x = 1 +* 2\n")
