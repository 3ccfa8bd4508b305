"""What every worker would do first, done once before any is forked. Nothing here touches CUDA."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from pathlib import Path

SEED = "triton-seed"
"""Folder, beside the workers' own, with what Triton compiles once a machine."""


def warm_up(scratch: Path, *, gpu: bool) -> None:
    """Import what the first launch imports, hash Triton's sources, build its CUDA helper: about a second each time.

    Args:
        scratch: the fork server's folder.
        gpu: whether workers launch on a GPU; the helper is built against the driver's library.
    """
    from triton.runtime.cache import triton_key

    triton_key()
    with contextlib.suppress(ImportError):  # not in every version of Triton
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")  # the first launch asks for it
    if gpu:
        from triton.backends.nvidia.driver import CudaUtils

        os.environ["TRITON_CACHE_DIR"] = str(scratch / SEED)
        CudaUtils()


def seed_cache(scratch: Path, cache: Path) -> None:
    """Give a worker its own copy of what ``warm_up`` compiled."""
    seed = scratch / SEED
    if seed.is_dir():
        shutil.copytree(seed, cache)
