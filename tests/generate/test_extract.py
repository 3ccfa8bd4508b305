from __future__ import annotations

import ast
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernelllm.generate.extract import MAX_CHARACTERS, ExtractError, extract, fenced_blocks

CODE = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\nclass ModelNew:\n    pass\n"
OTHER = "class Model:\n    pass\n"


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"Sure!\n\n```python\n{CODE}```\nDone.",
        f"```\n{CODE}```",
        f"~~~py\n{CODE}~~~",
        f"   ```Python\n{CODE}   ```",
        f"```python\n{CODE}",
        f"{CODE}```\nThat is all.",
        f"```python\n{OTHER}```\nbetter:\n```python\n{CODE}```",
        f"```python\n{CODE}```\nusage:\n```python\n{OTHER}```",
        f"```bash\npip install triton\n```\n```python\n{CODE}```",
        f"````python\n{CODE}````",
        f"```python\n{CODE}".replace("\n", "\r\n"),
        f"\ufeff```python\n{CODE}```".replace("class", "\u200bclass"),
        f"```python\n{CODE}```".replace("    pass", "\u00a0   pass"),
    ],
)
def test_code_is_found(text: str) -> None:
    assert extract(text).strip("\n") == CODE.strip("\n")


def test_blocks_that_build_on_each_other_are_joined() -> None:
    kernel, model = CODE.split("\n\n\nclass")
    assert extract(f"```python\n{kernel}\n```\nand\n```python\nclass{model}```").split() == CODE.split()


@pytest.mark.parametrize(
    "rest", ["def get_inputs():\n    return [torch.ran", "@triton.jit\ndef other(x", "x = [1,\n"]
)
def test_a_cut_off_end_is_dropped(rest: str) -> None:
    assert extract(f"```python\n{CODE}\n\n{rest}").strip("\n") == CODE.strip("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("I cannot help with that.", "holds no code"),
        (
            "```python\nclass ModelNew:\n    def forward(self, x:\n        return\n```",
            "does not parse: line 2",
        ),
        ("```python\nclass ModelNew:\n    def forward(self,", r"line 2: .* \(the text ends before"),
        ("```python\nprint(1)\n```", "no class and no function"),
        ("x" * (MAX_CHARACTERS + 1), "at most 400,000"),
        ("```python\n" + "(" * 5000 + "\n```", "does not parse"),
        ("```python\n" + "-" * 100_000 + "1\n```", "does not parse|cannot be parsed|no class"),
    ],
)
def test_the_reason_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ExtractError, match=message) as caught:
        extract(text)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_fences_of_another_length_do_not_close() -> None:
    assert [b.code for b in fenced_blocks("````\na\n```\nb\n````\n")] == ["a\n```\nb\n"]


FRAGMENTS = [
    "```",
    "```python\n",
    "~~~",
    "\n",
    "\r\n",
    "class ModelNew:\n    pass\n",
    "def f(",
    ")",
    "\x00",
    "\ud800",
    '"""',
    "@",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=20))).map("".join))
def test_any_text_ends_in_code_or_the_declared_error(text: str) -> None:
    with contextlib.suppress(ExtractError):
        ast.parse(extract(text))  # pytest-timeout sees to it that it ends
