"""Runs KernelBench's own evaluation, each in a process of its own with a time limit.

``CHECKOUT`` is a copy of github.com/ScalingIntelligence/KernelBench, of which ``src/kernelbench`` is needed; Python packages that
it needs and that are not installed may lie in ``CHECKOUT/deps``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

CLIENTS = ("dotenv", "litellm", "openai", "requests", "tqdm")
"""What KernelBench imports for its prompts and downloads; no evaluation calls any of it."""


def import_kernelbench(checkout: Path) -> None:
    """Makes ``kernelbench`` importable, with empty modules for those of ``CLIENTS`` that are not installed."""
    sys.path[:0] = [str(checkout / "src"), str(checkout / "deps")]
    for name in CLIENTS:
        if importlib.util.find_spec(name) is None:
            client = types.ModuleType(name)
            client.__spec__ = importlib.machinery.ModuleSpec(name, None)
            for attribute in ("load_dotenv", "completion", "OpenAI", "tqdm"):
                setattr(client, attribute, lambda *args, **kwargs: None)
            sys.modules[name] = client


def is_checkout(folder: Path) -> bool:
    """Whether KernelBench's evaluation lies there."""
    return (folder / "src" / "kernelbench" / "eval.py").is_file()


def evaluate(
    checkout: Path, reference: str, candidate: str, limit: float, path: Path | None = None
) -> dict[str, Any]:
    """Returns what ``eval_kernel_against_ref`` says of a candidate, with the seconds that it took.

    Args:
        checkout: of KernelBench.
        reference: text of the problem.
        candidate: text with a ``ModelNew``.
        limit: seconds after which the process is ended with all its children.
        path: folder from which both may import.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        request = {
            "kernelbench": str(checkout),
            "reference": reference,
            "candidate": candidate,
            "path": str(path or folder),
            "answer": str(answer),
        }
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": search, "TMPDIR": folder, "HOME": folder},
        )
        try:
            printed, _ = process.communicate(json.dumps(request).encode(), timeout=limit)
            fate = f"process ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            printed, fate = b"", f"not done after {limit:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        found = {
            "passed": False,
            "suspected": False,
            "seconds": None,
            "reported": f"{fate}: {printed[-300:].decode(errors='replace')}",
        }
        if answer.exists():
            found |= json.loads(answer.read_text(encoding="utf-8"))
    return found | {"process_seconds": time.perf_counter() - start}


def evaluate_here(request: dict[str, Any]) -> None:
    """The evaluating process: one call of ``eval_kernel_against_ref``, its result written to ``request["answer"]``."""
    import_kernelbench(Path(request["kernelbench"]))
    sys.path.insert(0, request["path"])
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    torch.cuda.init()
    start = time.perf_counter()
    result = eval_kernel_against_ref(
        request["reference"],
        request["candidate"],
        num_correct_trials=5,
        num_perf_trials=100,
        measure_performance=True,
        timing_method="cuda_event",
        backend="triton",
        device=torch.device("cuda:0"),
        precision=torch.float32,
    )
    answer = {
        "passed": bool(result and result.compiled and result.correctness),
        "suspected": bool(result and result.metadata.get("excessive_speedup")),
        "reported": "" if result is None else str(result.metadata)[:400],
        "runtime": result.runtime if result else -1.0,
        "reference_runtime": result.ref_runtime if result else -1.0,
        "seconds": time.perf_counter() - start,
    }
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    evaluate_here(json.loads(sys.stdin.read()))
