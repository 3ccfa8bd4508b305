"""Hypothesis strategies: answers of language models, put together around code that is known."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from rendering import COMPLETIONS

from kernelllm_judge.render.extract import extract

STORED = tuple(
    extract((COMPLETIONS / f"{name}.txt").read_bytes().decode())
    for name in ("hand_add", "hand_softmax", "hand_block", "dialect_add_relu", "dialect_softmax")
)
"""Programs to wrap: hand-style and in the dialect of compilers."""

ORIGINAL = (
    "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
)
USAGE = "model = ModelNew().cuda()\nprint(model(x).shape)\n"
TEST = "def test_it():\n    assert torch.allclose(Model()(x), ModelNew()(x))\n"
OTHERS = (
    f"```python\n{ORIGINAL}```",
    "```bash\npip install triton\n```",
    "```\n$ python model.py\nok\n```",
    '```json\n{"speedup": 2.0}\n```',
    "~~~text\nclass of problems: memory-bound\n~~~",
    "Use `triton.jit` and ```tl.load``` with care.",
)
"""What stands around an answer without being one."""

SENTENCE = "the kernel is fused so each program reads one row, class by class; then: import (nothing) = 2x"
WORDS = tuple(SENTENCE.split())


@dataclass(frozen=True)
class Answer:
    """A text and the program that is in it."""

    text: str
    code: str


def _is_program(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


prose = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=3, max_size=12)
    .map(lambda words: "The " + " ".join(words))
    .filter(lambda sentence: not _is_program(sentence)),
    max_size=5,
).map("\n".join)
"""Sentences; some of their words are Python's."""

blocks_around = st.lists(st.one_of(prose, st.sampled_from(OTHERS)), max_size=4).map("\n\n".join)


@st.composite
def fenced(draw: Callable, code: str) -> str:
    """The code in a fence of some kind."""
    mark = draw(st.sampled_from(["```", "````", "~~~"]))
    tag = draw(
        st.sampled_from(
            [
                "",
                "python",
                "Python",
                " py",
                "python3",
                "triton",
                "python:model.py",
                "{.python}",
                "python title=x",
            ]
        )
    )
    indent = draw(st.sampled_from(["", "", "  ", "    ", "\t"]))
    body = "".join(f"{indent}{line}\n" if line else "\n" for line in code.split("\n")).rstrip()
    before = (
        draw(st.sampled_from(["", "", "Answer: "])) if mark == "```" and not indent and " " not in tag else ""
    )
    return f"{indent}{before}{mark}{tag}\n{body}\n{indent}{mark}"


@st.composite
def wrapped(draw: Callable) -> Answer:
    """A whole answer with one program in it."""
    code = draw(st.sampled_from(STORED))
    form = draw(st.sampled_from(["fenced", "unclosed", "raw", "continued", "bare", "cut", "usage", "split"]))
    before, after = draw(blocks_around), draw(blocks_around)
    if form == "fenced":
        text = f"{before}\n\n{draw(fenced(code))}\n\n{after}"
    elif form == "unclosed":
        text = f"{before}\n\n```python\n{code}"
    elif form == "raw":
        text = code
    elif form == "continued":  # the prompt ended with the opening fence
        text = f"{code}\n```\n{draw(prose)}"
    elif form == "bare":
        text = f"{draw(prose)}\n{code}\n\n{draw(prose)}"
    elif form == "cut":
        rest = draw(
            st.sampled_from(
                [
                    "def get_inputs():\n    return [torch.rand(",
                    "@triton.jit\ndef other(",
                    'x = """never',
                    "if __name__",
                ]
            )
        )
        text = f"{before}\n\n```python\n{code.rstrip()}\n\n\n{rest}"
    elif form == "usage":
        text = f"{before}\n\n{draw(fenced(code))}\n\nUsage:\n\n```python\n{USAGE}```\n\n```python\n{TEST}```"
    else:
        at = re.search(r"^class ModelNew", code, re.MULTILINE)
        assert at is not None
        text = f"```python\n{code[: at.start()]}```\nand then\n```python\n{code[at.start() :]}\n```\n{draw(prose)}"
    return Answer(draw(disguised(text)), code)


@st.composite
def disguised(draw: Callable, text: str) -> str:
    """The same text with line ends, spaces and invisible characters as copying and decoding leave them."""
    if draw(st.booleans()):
        text = "\ufeff" + text
    invisible = draw(st.sampled_from(["", "\u200b", "\u200e", "\x00", "\u00ad"]))
    if invisible:
        places = draw(st.lists(st.integers(0, len(text)), max_size=5))
        for place in sorted(places, reverse=True):
            text = text[:place] + invisible + text[place:]
    if draw(st.booleans()):
        text = text.replace("\n    ", "\n\u00a0   ")
    text = draw(st.sampled_from([text, text + "<|eot_id|>", text + "\n</s>", text + "<|im_end|>\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"])))
