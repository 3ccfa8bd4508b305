"""The text for an architecture does not depend on whether its GPU is in the machine."""

import sys
from pathlib import Path

from pytest_kernelllm.judge.environment import find_gpus

ROOT = Path(__file__).parents[2]


def test_most_example_targets_get_the_same_text_with_and_without_the_gpu(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.delitem(sys.modules, "same_text", raising=False)
    from same_text import EXAMPLES, compare

    projects = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
    share, lines = compare(projects, find_gpus()[0].arch, samples=2)
    assert share >= 0.9, "\n".join(lines)
