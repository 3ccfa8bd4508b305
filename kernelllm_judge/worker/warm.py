"""Does what every worker would do first, once, before any is forked. Never initialises CUDA."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from pathlib import Path

SEED = "triton-seed"
"""Folder next to the workers' folders, with what Triton compiles once per machine."""


def warm_up(scratch: Path, *, gpu: bool) -> None:
    """Imports what the first calls import, hashes Triton's sources, and builds its CUDA helper.

    This takes one to four seconds, which every worker saves.

    Args:
        scratch: the fork server's folder.
        gpu: whether workers launch on a GPU; the helper is built against the driver's library.
    """
    from triton.runtime.cache import triton_key

    triton_key()
    _import_for_calls()
    if gpu:
        from triton.backends.nvidia.driver import CudaUtils

        os.environ["TRITON_CACHE_DIR"] = str(scratch / SEED)
        CudaUtils()


def warm_up_interpreter() -> None:
    """Patches Triton's interpreter for all workers, and imports what the first calls import."""
    from kernelllm_judge.worker import tuning  # noqa: F401  (with the sanitizer)

    prepare_interpreter()
    _import_for_calls()


def prepare_interpreter() -> None:
    """Makes Triton's interpreter what candidates are judged in, before any kernel is imported. Not to be repeated."""
    from kernelllm_judge.worker.absent_gpu import answer_for_gpu, answer_warmup
    from kernelllm_judge.worker.batching import patch_tensors, run_at_once
    from kernelllm_judge.worker.eight_bits import convert_eight_bits
    from kernelllm_judge.worker.fast_language import speed_up_language
    from kernelllm_judge.worker.gpu_semantics import compute_as_on_gpu, fix_bfloat16
    from kernelllm_judge.worker.language import read_as_compiler
    from kernelllm_judge.worker.libdevice import compute_libdevice

    run_at_once()
    speed_up_language()
    answer_for_gpu()
    answer_warmup()
    fix_bfloat16()
    convert_eight_bits()
    compute_as_on_gpu()
    compute_libdevice()
    read_as_compiler()
    patch_tensors()


def _import_for_calls() -> None:
    with contextlib.suppress(ImportError):  # for a launch; not in every version of Triton
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")


def seed_cache(scratch: Path, cache: Path) -> None:
    """Copies what ``warm_up`` compiled to a worker's own Triton cache."""
    seed = scratch / SEED
    if seed.is_dir():
        shutil.copytree(seed, cache)
