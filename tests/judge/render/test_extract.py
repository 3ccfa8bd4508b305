from __future__ import annotations

import ast
import contextlib
import textwrap

import pytest
from answers import Answer, wrapped
from hypothesis import given, settings, strategies as st

from kernelllm_judge.render import extract as extraction
from kernelllm_judge.render.extract import MAX_CHARACTERS, ExtractError, extract
from kernelllm_judge.render.fences import fenced_blocks
from kernelllm_judge.render.reasoning import MARKS

CODE = (
    "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\n"
    "class ModelNew:\n    def forward(self, x):\n        kernel[(1,)](x)\n"
)
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


@settings(max_examples=400, deadline=None)
@given(wrapped())
def test_wrapping_never_changes_the_program(answer: Answer) -> None:
    assert ast.dump(ast.parse(extract(answer.text))) == ast.dump(ast.parse(answer.code))


@pytest.mark.parametrize(
    "text",
    [
        f"Answer: ```python\n{CODE}```",
        f"```python\n{CODE.rstrip()}```\nThat is it.",
        "1. First:\n\n" + textwrap.indent(f"```python\n{CODE}```", "    "),
        f"<s>{CODE}<|eot_id|>",
        f"Sure, here it is.\n{CODE}\nThe kernel runs\nin one\nprogram.\nIt is\nfast.\nVery.",
        f"```python\n{CODE}```\nA plain version, for reference:\n```python\nclass ModelNew:\n    pass\n```",
        f"```python\n{CODE}```\nMore:\n```python\nclass ModelNew:\n    def forward(self, x",
        f"class ModelNew:\n    a = 1\n```\nNo, this:\n```python\n{CODE}```",
    ],
)
def test_code_is_found_in_odd_places(text: str) -> None:
    assert ast.dump(ast.parse(extract(text))) == ast.dump(ast.parse(CODE))


def test_fences_in_a_docstring_end_nothing() -> None:
    docstring = '    """Use it so:\n\n    ```python\n    ModelNew()\n    ```\n    """\n'
    code = CODE.replace("class ModelNew:\n", f"class ModelNew:\n{docstring}")
    assert extract(f"```python\n{code}```").rstrip() == code.rstrip()


@pytest.mark.parametrize(
    "text", [CODE, f"```python\n{CODE}```", f"Here:\n```python\n{OTHER}```\nand\n```python\n{CODE}```"]
)
def test_a_syntax_error_before_the_answer_is_named_with_its_line(text: str) -> None:
    broken = text.replace("def forward(self, x):", "def forward(self, x:")
    with pytest.raises(ExtractError, match=r"does not parse: line 10: .*was never closed"):
        extract(broken)


def test_a_syntax_error_in_what_the_answer_uses_is_named_with_its_line() -> None:
    model = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return double(x)\n"
    with pytest.raises(ExtractError, match="does not parse: line 10: invalid syntax"):
        extract(f"{model}\n\ndef double(x):\n    return x +\n")
    assert extract(f"{model}\n\nThis doubles: x +\n").rstrip() == model.rstrip()


def test_a_kernel_that_is_used_comes_along_even_where_the_last_block_has_one_too() -> None:
    first = "import triton\n\n\n@triton.jit\ndef one(x):\n    pass\n"
    last = "@triton.jit\ndef two(x):\n    pass\n\n\nclass ModelNew:\n    def forward(self, x):\n        one[(1,)](x)\n        two[(1,)](x)\n"
    assert extract(f"```python\n{first}```\nand\n```python\n{last}```").split() == (first + last).split()


def test_blocks_that_build_on_each_other_are_joined() -> None:
    kernel, model = CODE.split("\n\n\nclass")
    assert extract(f"```python\n{kernel}\n```\nand\n```python\nclass{model}```").split() == CODE.split()


DRAFT = CODE.replace("(1,)", "(2,)")


@pytest.mark.parametrize(
    "text",
    [f"{begin}First\n```python\n{DRAFT}```\nNo.{end}\n\n```python\n{CODE}```" for begin, end in MARKS]
    + [
        f"First\n```python\n{DRAFT}```\n</think>\n{CODE}",
        f"<think>\nhm\n</think>\n{CODE}\nThat is all.",
        f"<think>{DRAFT}</think>\nHere:\n```python\n{CODE}```\nand a test:\n```python\nclass Test:\n    pass\n```",
    ],
)
def test_drafts_in_a_models_reasoning_are_no_answers(text: str) -> None:
    assert extract(text).strip("\n") == CODE.strip("\n")


def test_a_function_that_is_the_answer_is_found_among_blocks() -> None:
    kernel = CODE.partition("\n\n\nclass")[0]
    function = "def kernel_function(x):\n    kernel[(1,)](x)\n"
    test = "def test():\n    kernel_function(1)\n"
    text = f"```python\n{kernel}\n```\nand\n```python\n{function}```\nand a test\n```python\n{test}```"
    assert extract(text).split() == f"{kernel}\n{function}".split()


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
        (f"<think>\nLike this?\n```python\n{CODE}```\nOr", "ends before its reasoning does"),
        (f"<think>\n```python\n{CODE}```\n</think>\nI cannot.", "holds no code"),
        (
            "```python\nclass ModelNew:\n    def forward(self, x:\n        return\n```",
            "does not parse: line 2",
        ),
        ("```python\nclass ModelNew:\n    def forward(self,", r"line 2: .* \(the text ends before"),
        ("```python\nprint(1)\n```", "no class and no function"),
        ("x" * (MAX_CHARACTERS + 1), "at most 400,000"),
        ("```python\n" + "(" * 5000 + "\n```", "does not parse"),
        ("```python\n" + "-" * 100_000 + "1\n```", "does not parse|cannot be parsed|no class"),
        ("```python\nclass ModelNew:\n    n = 1" + "0" * 5000 + "\n```", "does not parse"),
        ("```python\ndef forward(x):\n    return " + "+".join(["x"] * 30_000) + "\n```", "does not parse"),
        ("```python\ndef forward(x):\n    return x" + "[0]" * 30_000 + "\n```", "does not parse"),
        (
            "```python\n" + "if x: pass\n" + "elif y: pass\n" * 20_000 + "def forward(): pass\n```",
            "does not parse",
        ),
        ("```python\n" + "\n".join(" " * i + "if 1:" for i in range(200)) + "\n```", "does not parse"),
        ("\x00" * 1000, "is empty"),
    ],
)
def test_the_reason_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ExtractError, match=message) as caught:
        extract(text)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_fences_of_another_length_do_not_close() -> None:
    assert [b.code for b in fenced_blocks("````\na\n```\nb\n````\n")] == ["a\n```\nb\n"]


LONG = 390_000
ADVERSARIAL = {
    "rambling": "Wait, let me think about the kernel again. " * (LONG // 43),
    "rambling in lines": "Wait, let me think.\n" * (LONG // 20),
    "backticks": "`" * LONG,
    "fences": "```\n" * (LONG // 4),
    "a fence and spaces": "```" + " " * LONG + "`",
    "opening fences": "```python\n" * (LONG // 10),
    "answers": "```python\nclass ModelNew: pass\n```\n" * (LONG // 40),
    "answers that use a kernel": "```python\ndef k(): pass\n```\n"
    + "```python\nclass ModelNew: f = k\n```\n" * (LONG // 40),
    "broken answers": "```python\nclass ModelNew: (\n```\n" * (LONG // 38),
    "broken code": "class ModelNew: (\n" * (LONG // 18),
    "code lines in prose": "import this and that:\n" * (LONG // 24),
    "tokens": "<|eot_id|>" * (LONG // 10),
    "half a token": "<|" + "a" * LONG,
    "decorators": "@triton.jit\n" * (LONG // 12),
    "line ends": "\r\n" * (LONG // 2),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_work_grows_with_the_length_and_not_with_its_square(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = ADVERSARIAL[name]
    parsed = 0

    def counting(code: str) -> ast.Module | str:
        nonlocal parsed
        parsed += len(code)
        return parse(code)

    parse = extraction.parse
    monkeypatch.setattr(extraction, "parse", counting)
    with contextlib.suppress(ExtractError):
        extract(text)
    assert parsed <= 20 * len(text)


def test_the_snippets_grow_with_the_length() -> None:
    blocks = ["def k(): pass\n", *["class ModelNew: f = k\n"] * 3000]
    characters = sum(map(len, extraction._by_preference(blocks, "")))
    assert characters <= 20 * sum(map(len, blocks))


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
    "    ```\n",
    "return out```",
    "<|eot_id|>",
    "import triton\n",
    "@triton.jit\ndef k(x):\n    pass\n",
    "\u2028",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=20)), max_size=12).map("".join))
def test_any_text_ends_in_code_or_the_declared_error(text: str) -> None:
    with contextlib.suppress(ExtractError):
        ast.parse(extract(text))  # pytest-timeout sees to it that it ends
