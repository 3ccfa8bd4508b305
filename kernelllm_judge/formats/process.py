"""Judges in a process of its own, for programs that import other harnesses and keep their own CUDA context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.core.records import Verdict

_DECIDED = (0, 1, 3)
"""Exit codes of ``kernelllm-judge`` with a verdict."""


def judged_apart(
    reference: Path, candidate: Path, *, timing: bool, dtypes: Sequence[str] = (), gpu: int | None = None
) -> Verdict:
    """Runs ``kernelllm-judge --json`` on two files.

    Args:
        reference: a file in KernelBench's form.
        candidate: an answer to it.
        timing: whether speed is measured, on a GPU.
        dtypes: what parameters and inputs are cast to; none leaves them.
        gpu: the number of the CUDA device, of those that this process sees; None is the first one, or Triton's interpreter
            where there is none.

    Raises:
        RuntimeError: there is no verdict; the text says why.
    """
    command = [sys.executable, "-m", "kernelllm_judge.cli", str(reference), str(candidate), "--json"]
    command += [] if timing else ["--no-timing"]
    command += [option for dtype in dtypes for option in ("--dtype", dtype)]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    if gpu is not None:
        visible = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        environment["CUDA_VISIBLE_DEVICES"] = visible[gpu] if gpu < len(visible) else str(gpu)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in _DECIDED or not done.stdout.strip():
        last = (
            done.stderr.strip().rpartition("\n")[2] or f"kernelllm-judge ended with status {done.returncode}"
        )
        raise RuntimeError(last)
    return Verdict.from_json(json.loads(done.stdout))
