"""Explains to a model why its answer was rejected, without what the judge keeps secret: seeds, drawn sizes and bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelllm_judge.core.records import Completion, Timing, Verdict
from pytest_kernelllm.generate.protocol import Attempt

FEEDBACK_VERSION = 2
"""Raised whenever the feedback for an unchanged verdict changes; stored repairs are looked up by it."""

ADVICE = {
    "supports": "The kernel has to serve every case of the module that it replaces.",
    "memory": "Mask every load and store so that it stays inside its tensor, write memory before it is read, and let no two "
    "programs write the same element.",
    "types": "Return tensors of the same structure, dtype, shape and strides as the original.",
    "launches": "The work has to be done by Triton kernels that every call launches.",
    "inputs kept": "Inputs, parameters and buffers must hold the same values after the call.",
    "buffers updated": "Buffers that the original updates in its call must be updated in the same way.",
    "guards": "Mask every store so that it stays inside its tensor.",
    "sizes": "Sizes need not be multiples of a block, and may be anywhere in the stated ranges.",
    "stress": "Accumulate in float32, and avoid overflow and cancellation: subtract the maximum before exp.",
    "nonfinite": "NaN and infinities in the inputs must come out where the original has them.",
    "weights": "Weights may be negative, zero, large or NaN; read them in every call.",
    "fixed inputs": "Inputs may have any values.",
    "integer inputs": "Integers may repeat, be negative and be large.",
    "attributes": "Read attributes of the module in the call; do not write their values into the kernel.",
    "aliasing": "Outputs must be new tensors, unless the original returns views.",
    "memory held": "Outputs must not be views of larger tensors.",
    "torch's share": "Move the arithmetic into Triton kernels; torch may allocate, view, copy and cast.",
    "device time": "Move the arithmetic into Triton kernels; torch may allocate, view, copy and cast.",
    "decoy": "The kernels have to compute the result.",
    "state kept": "Compute every call anew; keep nothing of earlier calls.",
    "fresh address": "Compute every call anew; keep nothing of earlier calls.",
    "recheck": "Compute every call anew; keep nothing of earlier calls.",
    "repeat": "Programs run in any order and beside each other: let none depend on another.",
    "alignment": "Do not assume that pointers are aligned to more than one element.",
}
"""What a rule asks for, where the reason of a rejection may not say it."""

_PROBE = re.compile(r"(?P<case>[\w.+-]+)(?P<sizes>(?:, \w+=\d+)*), seed -?\d+")
"""How a reason names a probe, see ``judge.reference.probes.Probe.describe``."""

_BOUND = re.compile(r",? (?:allowed|required at least) [\d.eE+-]*(?:inf|nan|[\d.eE+-]+)x?(?: by [\w' ]+)?")
_LINE = re.compile(r"\bline (\d+)\b")

_ASK = """Write the whole module again, corrected. Answer with one fenced python block that holds all imports, the kernels and \
ModelNew, and nothing else."""


@dataclass(frozen=True)
class _Reason:
    """A verdict's reason without secrets."""

    text: str
    drawn: bool
    """Whether it is about sizes that the judge drew."""


def feedback(attempt: Attempt, sizes: Mapping[str, Mapping[str, int]]) -> str:
    """Returns what a model reads about a rejected answer: why, and a request for another one.

    Nothing that a candidate could put there itself is stated about a call at sizes that the judge drew: no values,
    messages or lines. Such a text could carry the sizes. A verdict's example may be stated whole: its inputs are drawn for it.
    """
    verdict = attempt.verdict
    if verdict is None:
        return f"{_unanswered(attempt.completion)} {_ASK}"
    if verdict.correct:
        return f"Your answer is right, but not fast enough.\n\n{_times(verdict)}\n\nMake it faster. {_ASK}"
    reason = _stated(verdict, sizes)
    advice = ADVICE.get(verdict.rule, "")
    named = f"stage: {verdict.stage}" + (f", rule: {verdict.rule}" if verdict.rule else "")
    quoted = "" if reason.drawn else _quoted(reason.text, attempt.source)
    return "\n\n".join(
        filter(
            None,
            [f"Your answer was rejected ({named}): {reason.text}.", quoted, _example(verdict), advice, _ASK],
        )
    )


def _example(verdict: Verdict) -> str:
    reason, _, inputs = verdict.example.partition("\n")
    if not reason:
        return ""
    stated = _BOUND.sub("", _PROBE.sub(r"\g<case>\g<sizes>", reason.rstrip(".")))
    return f"For example, {stated}, where\n{inputs}"


def _stated(verdict: Verdict, sizes: Mapping[str, Mapping[str, int]]) -> _Reason:
    """Returns what may be stated of a verdict's reason, see ``feedback``."""
    reason = verdict.reason.rstrip(".")
    probe = _PROBE.search(reason)
    if probe is None:
        return _Reason(_BOUND.sub("", reason), drawn=False)
    found = {name: int(size) for name, size in re.findall(r", (\w+)=(\d+)", probe["sizes"])}
    if any(size != sizes.get(probe["case"], {}).get(name) for name, size in found.items()):
        where = f"at other sizes of {', '.join(found)} than the stated ones"
        output = re.match(r"output \d+", reason)
        what = f"{output[0]} is wrong" if output else _what(verdict)
        return _Reason(f"{what} {where}", drawn=True)
    # Declared sizes are known already; all that is left is the seed.
    return _Reason(_BOUND.sub("", _PROBE.sub(r"\g<case>\g<sizes>", reason)), drawn=False)


def _what(verdict: Verdict) -> str:
    return "it fails" if verdict.stage in ("run", "load") else "it breaks this rule"


def _unanswered(completion: Completion) -> str:
    why = completion.note or "your answer was empty"
    return f"There was no code: {why}. No tools are offered."


def _quoted(reason: str, source: str) -> str:
    """Shows the lines that a reason names: they are those of the kernel module made of the answer."""
    lines = source.splitlines()
    numbers = dict.fromkeys(int(number) for number in _LINE.findall(reason))
    shown = [f"line {n}: {lines[n - 1].strip()}" for n in numbers if 1 <= n <= len(lines)]
    return "In the module that was made of your answer:\n" + "\n".join(shown) if shown else ""


def _times(verdict: Verdict) -> str:
    return "\n".join(map(_time, verdict.timing)) or "It could not be timed."


def _time(timing: Timing) -> str:
    compiled = f", torch.compile {timing.compiled.p50:.1f} µs" if timing.compiled else ""
    parts = [
        f"{timing.name}: your kernel takes {timing.kernel.p50:.1f} µs, PyTorch {timing.eager.p50:.1f} µs{compiled}"
    ]
    if timing.roofline:
        bound = f"{timing.bytes:,} bytes to move" + (
            f" and {timing.flops:,} operations" if timing.flops else ""
        )
        parts.append(
            f"this GPU needs at least {timing.roofline:.1f} µs for {bound}, so it reaches "
            f"{timing.roofline_share:.0%} of what is possible"
        )
    if timing.kernel_peak > timing.eager_peak > 0:
        parts.append(f"it allocates {timing.kernel_peak:,} bytes, PyTorch {timing.eager_peak:,}")
    return "; ".join([*parts, *filter(None, [timing.note])])
