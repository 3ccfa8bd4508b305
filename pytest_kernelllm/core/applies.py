"""Says which verdicts apply in an environment."""

from __future__ import annotations

import os
import re

from kernelllm_judge.core.records import Environment


def interpreting() -> bool:
    """Returns whether kernels run on the CPU, in Triton's interpreter."""
    return os.environ.get("KERNELLLM_INTERPRET") == os.environ.get("TRITON_INTERPRET") == "1"


def same(verdict: Environment, here: Environment) -> bool:
    """Returns whether a verdict applies here: the GPU, torch, triton and the judge's rules are the same.

    Python, the driver and a project's own thresholds may differ. In the interpreter the architecture does not matter:
    kernels were only compiled for it.
    """
    if _rules(verdict) != _rules(here):
        return False
    counts = ("device", "torch", "triton", *(("gpu", "arch") if here.device == "cuda" else ()))
    return all(getattr(verdict, name) == getattr(here, name) for name in counts)


def difference(verdict: Environment, here: Environment) -> str:
    """Describes the first difference, as "on A, not B"."""
    if _place(verdict) != _place(here):
        return f"on {_place(verdict)}, not {_place(here)}"
    for name in ("torch", "triton"):
        if getattr(verdict, name) != getattr(here, name):
            return (
                f"with {name} {getattr(verdict, name) or 'unknown'}, not {getattr(here, name) or 'without'}"
            )
    return f"under the judge's rules {_rules(verdict)}, not {_rules(here)}"


def _place(environment: Environment) -> str:
    return f"{environment.gpu} ({environment.arch})" if environment.gpu else "Triton's interpreter"


def _rules(environment: Environment) -> str:
    """The version of the judge's rules, without a project's own changes (``2 1.1x``, ``2+0.01ab…``)."""
    found = re.match(r"[^ +]*", environment.policy)
    return found[0] if found else ""
