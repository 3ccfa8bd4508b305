"""Words for people: numbers, and sentences on standard error."""

from __future__ import annotations

import sys

from kernelllm_judge.core.records import Verdict


def counted(number: int, noun: str) -> str:
    """Returns ``1 verdict``, ``1,234 verdicts``, ``2 patches``."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def speedups(verdict: Verdict) -> str:
    """Returns ``, 1.83x eager [1.80, 1.86], 1.20x torch.compile [1.10, 1.30]``, as far as they were measured."""
    named = (("eager", verdict.speedup), ("torch.compile", verdict.speedup_compiled))
    return "".join(f", {r.value:.2f}x {name} [{r.low:.2f}, {r.high:.2f}]" for name, r in named if r)


def say(*sentences: object) -> None:
    """Writes sentences to standard error, apart from what another program may read."""
    for sentence in sentences:
        print(f"kernelllm: {sentence}", file=sys.stderr, flush=True)
