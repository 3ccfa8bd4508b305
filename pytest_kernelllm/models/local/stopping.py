"""Where an answer ends: with its fenced block, if there is one that holds a whole answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from pytest_kernelllm.generate.render.fences import fenced_blocks

TAIL = 64
"""Tokens at the end that are searched for a fence before the whole text is read."""


def answered(text: str) -> bool:
    """Whether the text holds a closed block with a ``ModelNew`` in it."""
    return any(block.closed and "class ModelNew" in block.code for block in fenced_blocks(text))


def settled(text: str) -> bool:
    """The same of whole lines only: a fence at the very end may still become the opening of another block."""
    return answered(text[: text.rfind("\n") + 1])


def stop_after_answer(decode: Callable[[Sequence[int]], str]) -> Callable[[list[int]], int | None]:
    """What ``Decoder.run`` asks: how many tokens of a text count because it is complete.

    What it says of a text holds for every longer one, so that it does not matter how often it is asked.

    Args:
        decode: text of token ids.
    """

    def stop(tokens: list[int]) -> int | None:
        if "```" not in decode(tokens[-TAIL:]) or not settled(decode(tokens)):
            return None
        end = bisect_left(range(len(tokens)), True, key=lambda n: settled(decode(tokens[:n])))
        while answered(decode(tokens[: end - 1])):
            end -= 1
        return end

    return stop
