"""Where a text is complete, whatever the pieces it comes in."""

import pytest
from hypothesis import given, settings, strategies as st
from random_llama import make_tokenizer

from kernelllm_judge.render.extract import extract
from pytest_kernelllm.models.local.stopping import stop_after_answer

CODE = '''import torch
import triton


class ModelNew(torch.nn.Module):
    """Größer – 速い."""

    def forward(self, x):
        return x
'''
ANSWER = f"Here it is:\n\n```python\n{CODE}```"
AFTER = "\n\nThis kernel is fast:\n\n```python\nprint('no')\n```\n"

BYTES = make_tokenizer(adds_begin=False)


def decode_bytes(tokens):
    return BYTES.decode(tokens, clean_up_tokenization_spaces=False)


def encode(text):
    return BYTES(text)["input_ids"]


def looked_at(tokens, chunk):
    """Where a text ends for somebody who looks at it every ``chunk`` tokens."""
    stop = stop_after_answer(decode_bytes)
    for seen in range(chunk, len(tokens) + chunk, chunk):
        if (count := stop(tokens[:seen])) is not None:
            return decode_bytes(tokens[:count])
    return None


@pytest.mark.parametrize("chunk", [1, 2, 3, 16, 50])
def test_a_text_ends_with_the_fence_of_its_answer(chunk):
    assert looked_at(encode(ANSWER + AFTER), chunk) == ANSWER


@pytest.mark.parametrize("chunk", [1, 16, 50])
def test_the_end_is_noticed_at_the_next_snapshot(chunk):
    tokens = encode(ANSWER + "\n" + "And then it rambles on. " * 20)
    stop = stop_after_answer(decode_bytes)
    end = len(encode(ANSWER + "\n"))
    for seen in range(chunk, len(tokens), chunk):
        assert (stop(tokens[:seen]) is not None) == (seen >= end)
        if seen >= end:
            break


@pytest.mark.parametrize("chunk", [1, 16])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "class ModelNew: no fence at all\n" * 5,
        "```python\nimport triton\n```\nand now ModelNew:\n",
        f"```python\n{CODE}",
        f"```python\n{CODE}``\n",
        f"```python\n{CODE}```",
        f"````python\n{CODE}```\nstill inside\n",
        f"```python\n{CODE}x = '```'\n",
    ],
    ids=[
        "nothing",
        "no fence",
        "another block",
        "unclosed",
        "two signs",
        "perhaps the opening of the next",
        "a longer fence",
        "a fence in a string",
    ],
)
def test_a_text_goes_on_while_its_answer_is_not_complete(text, chunk):
    assert looked_at(encode(text), chunk) is None


@pytest.mark.parametrize("chunk", [1, 2, 16])
def test_blocks_before_the_answer_do_not_end_it(chunk):
    before = "First a helper:\n```python\ndef helper(): ...\n```\nthen\n```\nshell\n```\n"
    assert looked_at(encode(before + ANSWER + AFTER), chunk) == before + ANSWER


@pytest.mark.parametrize("chunk", [1, 2, 7, 16])
def test_a_fence_that_opens_another_block_does_not_end_the_answer(chunk):
    twice = f"```python\n{CODE}```python\n{CODE}```"
    assert looked_at(encode(twice + AFTER), chunk) == twice


def test_a_fence_in_a_docstring_does_not_end_the_answer():
    code = CODE.replace("    def", "    ```\n    example\n    ```\n\n    def")
    answer = f"```python\n{code}```"
    assert looked_at(encode(answer + AFTER), 16) == answer


def test_the_shape_of_line_ends_does_not_matter():
    answer = ANSWER.replace("\n", "\r\n")
    assert looked_at(encode(answer + AFTER.replace("\n", "\r\n")), 16) == answer


def test_a_token_that_holds_the_fence_and_more_is_kept_whole():
    pieces = ["```python\n", CODE, "```\n\n", "The", " end", ".\n"]
    stop = stop_after_answer(lambda tokens: "".join(pieces[i] for i in tokens))
    assert stop(list(range(len(pieces)))) == 3


def test_what_is_cut_off_changes_nothing_that_is_extracted():
    assert extract(looked_at(encode(ANSWER + AFTER), 16)) == extract(ANSWER)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    st.lists(
        st.sampled_from(
            [
                "```",
                "```python",
                "````",
                "\n",
                "\n\n",
                " ",
                "class ModelNew: ...",
                "x = 1",
                '"""',
                "    ",
                "`",
            ]
        ),
        max_size=24,
    )
)
def test_how_often_snapshots_are_taken_does_not_matter(pieces):
    tokens = encode("".join(pieces))
    ends = {looked_at(tokens, chunk) for chunk in (1, 2, 3, 16, 50)}
    assert len(ends) == 1
