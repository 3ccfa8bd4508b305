"""Makes Triton's interpreter what candidates are judged in. Done once, before any worker is forked."""

from __future__ import annotations

from kernelllm_judge.worker.absent_gpu import answer_for_gpu, answer_warmup
from kernelllm_judge.worker.fast_language import speed_up_language
from kernelllm_judge.worker.gpu_semantics import compute_as_on_gpu, fix_bfloat16
from kernelllm_judge.worker.language import read_as_compiler
from kernelllm_judge.worker.libdevice import compute_libdevice


def prepare_interpreter() -> None:
    """Patches this process's interpreter, before any kernel is imported. Not reversible, and not to be repeated."""
    speed_up_language()
    answer_for_gpu()
    answer_warmup()
    fix_bfloat16()
    compute_as_on_gpu()
    compute_libdevice()
    read_as_compiler()
