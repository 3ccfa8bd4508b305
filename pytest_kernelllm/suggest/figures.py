"""What the judge measured, one line each, for the header of an adopted kernel and for the person who reviews it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from kernelllm_judge.core.kernel_module import FIGURES, with_figures
from kernelllm_judge.core.records import Candidate, Ratio, Verdict
from pytest_kernelllm.report.worst import worst_error


def shipped(candidate: Candidate, verdict: Verdict) -> Candidate:
    """Returns the candidate as it is adopted: with the verdict's figures in the header of its source."""
    again = {"verify again": f"pytest --kernelllm-only {shlex.quote(candidate.target)}"}
    return replace(candidate, source=with_figures(candidate.source, figures(verdict) | again))


def figures(verdict: Verdict) -> dict[str, str]:
    """The measured figures by ``kernel_module.FIGURE_KEYS``; what was not measured is left out."""
    found = {"verified": _where(verdict)}
    if worst := worst_error(verdict):
        found["error"] = f"{worst.measured:.2g} relative to float64, {worst.allowed:.2g} allowed"
    if verdict.addresses is not None:
        found["addresses"] = verdict.addresses.in_words()
    if verdict.speedup is not None:
        number = len({timing.case for timing in verdict.timing})
        both = "forward pass and both passes" if any(t.passes != "forward" for t in verdict.timing) else ""
        means = filter(None, (both, f"{number} cases" if number > 1 else ""))
        cases = f" (mean of {' of '.join(means)})" if len(verdict.timing) > 1 else ""
        found["speedup"] = (
            f"{_ratio(verdict.speedup)} over eager{_compiled(verdict)}{cases}, with 95 % intervals{_notes(verdict)}"
        )
    return found


def slower_than_compile(target: str, verdict: Verdict) -> str:
    """Returns one line that warns of a kernel that ``torch.compile`` beats; empty for any other."""
    ratio = verdict.speedup_compiled
    if ratio is None or ratio.value >= 1.0:
        return ""
    sure = "slower than torch.compile" if ratio.high < 1.0 else "probably slower than torch.compile"
    return f"{target}: this kernel is {sure}: {_ratio(ratio)} of its speed."


def without_figures(patch: bytes) -> bytes:
    """Returns a patch without its figures: equal for equal kernels, whenever and wherever they were judged."""
    return _ADDED.sub(b"", patch[max(patch.find(b"diff --git "), 0) :])


_ADDED = re.compile(FIGURES.replace("# ", r"^[+]# ").encode(), re.MULTILINE)


def _where(verdict: Verdict) -> str:
    environment = verdict.environment
    versions = f"torch {environment.torch}, triton {environment.triton}, policy {environment.policy}"
    if environment.device == "cpu":
        text = f"in Triton's interpreter, compiled for {environment.arch}, not timed; {versions}"
        return f"{text}; {verdict.sizes_asked}" if verdict.sizes_asked else text
    where = f"on {environment.gpu} ({environment.arch}), driver {environment.driver}"
    return f"{where}; {versions}" if verdict.timing else f"{where}, not timed; {versions}"


def _compiled(verdict: Verdict) -> str:
    ratio = verdict.speedup_compiled
    return f", {_ratio(ratio)} over torch.compile" if ratio else ""


def _notes(verdict: Verdict) -> str:
    return "".join(f"; {timing.name} {timing.note}" for timing in verdict.timing if timing.note)


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
