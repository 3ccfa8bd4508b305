"""Says which verdicts apply in an environment."""

from __future__ import annotations

import os

from kernelllm_judge.core.records import Environment, Verdict
from kernelllm_judge.standing import standing


def interpreting() -> bool:
    """Returns whether kernels run on the CPU, in Triton's interpreter."""
    return os.environ.get("KERNELLLM_INTERPRET") == os.environ.get("TRITON_INTERPRET") == "1"


def applies(verdict: Verdict, here: Environment) -> bool:
    """Returns whether a verdict applies here: the GPU, torch and triton are the same, and it stands under today's rules.

    Python and the driver may differ. In the interpreter the architecture does not matter: kernels were only compiled for it.
    """
    counts = ("device", "torch", "triton", *(("gpu", "arch") if here.on_gpu else ()))
    there = verdict.environment
    return all(getattr(there, name) == getattr(here, name) for name in counts) and standing(verdict).stands


def difference(verdict: Verdict, here: Environment) -> str:
    """Describes why a verdict does not apply here, as "on A, not B"."""
    there = verdict.environment
    if _place(there) != _place(here):
        return f"on {_place(there)}, not {_place(here)}"
    for name in ("torch", "triton"):
        if getattr(there, name) != getattr(here, name):
            return f"with {name} {getattr(there, name) or 'unknown'}, not {getattr(here, name) or 'without'}"
    return f"under other rules of the judge: {standing(verdict).reason}"


def _place(environment: Environment) -> str:
    return f"{environment.gpu} ({environment.arch})" if environment.gpu else "Triton's interpreter"
