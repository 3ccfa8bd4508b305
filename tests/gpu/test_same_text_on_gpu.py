"""The text for an architecture does not depend on whether its GPU is in the machine."""

import sys
from pathlib import Path

from kernelllm_judge.environment import find_gpus

ROOT = Path(__file__).parents[2]


def test_most_targets_of_an_example_get_the_same_text_with_and_without_the_gpu(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.delitem(sys.modules, "same_text", raising=False)
    from same_text import EXAMPLES, compare

    share, lines = compare([EXAMPLES / "llm_blocks"], find_gpus()[0].arch, samples=1)
    assert share >= 0.9, "\n".join(lines)
