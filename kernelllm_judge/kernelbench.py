"""KernelBench's evaluation by this judge: one import makes a harness strict.

``from kernelllm_judge.kernelbench import eval_kernel_against_ref`` in place of ``from kernelbench.eval import …``, or assign it to
``kernelbench.eval.eval_kernel_against_ref``. Parameters and the result's fields are those of KernelBench
(https://github.com/ScalingIntelligence/KernelBench, ``src/kernelbench/eval.py``, March 2026).
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelllm_judge.core.records import Verdict
from kernelllm_judge.formats.process import judged_apart

if TYPE_CHECKING:
    import torch

_BEFORE_RUNNING = ("render", "static check", "compile", "load")
"""Stages that KernelBench counts as compiling."""


@dataclass
class KernelExecResult:
    """What an evaluation gave, where KernelBench, whose class is taken otherwise, is not imported."""

    compiled: bool = False
    correctness: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    """``hardware``, ``device``, why it is wrong, and the whole verdict as ``kernelllm``."""
    runtime: float = -1.0
    """Median ms of a call; -1 where it was not timed."""
    runtime_stats: dict[str, Any] = field(default_factory=dict)
    """Percentiles of these times in ms."""
    ref_runtime: float = -1.0
    """Median ms of a call of the original."""
    ref_runtime_stats: dict[str, Any] = field(default_factory=dict)

    def model_dump(self) -> dict[str, Any]:
        """Returns all fields, as pydantic does."""
        return asdict(self)


def eval_kernel_against_ref(
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,
    timing_method: str = "cuda_event",
    verbose: bool = False,
    build_dir: str | os.PathLike[str] | None = None,
    device: torch.device | int | None = None,
    backend: str = "triton",
    precision: torch.dtype | None = None,
    check_for_excessive_speedup: bool = True,
    excessive_speedup_threshold: float = 10,
) -> Any:
    """Judges an answer of a model for a problem, in a process of its own.

    The judge draws its own inputs and times in its own way, so ``seed_num``, the numbers of trials, ``timing_method`` and
    ``build_dir`` change nothing. What is undecided is not correct; ``metadata["undecided"]`` says why.

    Args:
        original_model_src: the problem's text.
        custom_model_src: a text with a class ``ModelNew``.
        measure_performance: whether to time it beside the original, on a GPU.
        verbose: prints the verdict in a sentence.
        device: a CUDA device; None is the first one, or Triton's interpreter where there is none.
        backend: must be ``triton``.
        precision: what parameters and inputs are cast to; None leaves them.
        check_for_excessive_speedup: notes a speedup above ``excessive_speedup_threshold`` in ``metadata["excessive_speedup"]``.

    Returns:
        KernelBench's ``KernelExecResult`` where ``kernelbench.eval`` is imported, else the one of this module.

    Raises:
        ValueError: the backend is another one.
        RuntimeError: the problem cannot be judged, because it cannot be imported, built or called, say.
    """
    if backend.lower() != "triton":
        raise ValueError(f"This judge knows Triton kernels only, and backend is {backend!r}.")
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
        reference, candidate = Path(folder) / "reference.py", Path(folder) / "candidate.py"
        reference.write_text(original_model_src, encoding="utf-8")
        candidate.write_text(custom_model_src, encoding="utf-8")
        verdict = judged_apart(
            reference,
            candidate,
            timing=measure_performance,
            dtypes=() if precision is None else (str(precision).removeprefix("torch."),),
            gpu=device if device is None or isinstance(device, int) else device.index,
        )
    if verbose:
        print(f"[Eval] {verdict.in_words()}")
    metadata = _metadata(verdict, device)
    times: dict[str, Any] = {}
    if verdict.timing:
        timing = verdict.timing[0]
        for name, spread in (("runtime", timing.kernel), ("ref_runtime", timing.eager)):
            times[name] = spread.p50 / 1e3
            times[f"{name}_stats"] = {
                f"p{n}": us / 1e3 for n, us in ((20, spread.p20), (50, spread.p50), (80, spread.p80))
            }
        if (
            check_for_excessive_speedup
            and times["ref_runtime"] > excessive_speedup_threshold * times["runtime"]
        ):
            metadata["excessive_speedup"] = True
    theirs = sys.modules.get("kernelbench.eval")
    result = KernelExecResult if theirs is None else theirs.KernelExecResult
    compiled = verdict.correct or verdict.stage not in _BEFORE_RUNNING
    return result(compiled=compiled, correctness=verdict.correct, metadata=metadata, **times)


def _metadata(verdict: Verdict, device: Any) -> dict[str, Any]:
    environment = verdict.environment
    metadata: dict[str, Any] = {"hardware": environment.gpu or "CPU", "device": str(device)}
    metadata["kernelllm"] = verdict.to_json()
    if verdict.correct:
        return metadata
    if verdict.verdict == "inconclusive":
        key = "undecided"
    elif verdict.stage in _BEFORE_RUNNING:
        key, metadata["compilation_error_name"] = "compilation_error", verdict.rule or verdict.stage
    elif verdict.rule == "run":
        key, metadata["runtime_error_name"] = "runtime_error", verdict.rule
    else:
        key = "correctness_issue"
    metadata[key] = verdict.reason
    return metadata
