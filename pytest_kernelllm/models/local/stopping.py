"""Decides where an answer ends: after the first fenced block with a whole answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from kernelllm_judge.render.fences import fenced_blocks

TAIL = 64
"""Number of last tokens that are searched for a fence before the whole text is decoded."""


def answered(text: str) -> bool:
    """Whether a text has a closed fenced block with a class ``ModelNew``."""
    return any(block.closed and "class ModelNew" in block.code for block in fenced_blocks(text))


def settled(text: str) -> bool:
    """Whether the complete lines of a text are an answer; a fence on the last line may still open another block."""
    return answered(text[: text.rfind("\n") + 1])


def stop_after_answer(decode: Callable[[Sequence[int]], str]) -> Callable[[list[int]], int | None]:
    """Returns the ``stop`` function for ``Decoder.run``: how many tokens count once a text is complete, else None.

    Its result for a text is the same for every longer one, so it does not matter how often it is called.
    """

    def stop(tokens: list[int]) -> int | None:
        if "```" not in decode(tokens[-TAIL:]) or not settled(decode(tokens)):
            return None
        end = bisect_left(range(len(tokens)), True, key=lambda n: settled(decode(tokens[:n])))
        while answered(decode(tokens[: end - 1])):
            end -= 1
        return end

    return stop
