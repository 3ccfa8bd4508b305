"""Whole models through ``kernelllm optimize``, beside eager, ``torch.compile`` and its ``max-autotune-no-cudagraphs``, in one run.

Each model is optimized in a process and a project of its own, from nothing. Its rows say how many times as fast the chosen way
is, with the error relative to that of ``torch.compile``, the seconds to the answer, and the share of the limit that is reached.
Needs a GPU. What is measured is written down after each model.

    python -m benchmarks models [NAME …] [--budget 10min]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.model_factories import NAMES, NEEDS
from benchmarks.rows import Row, command

FACTORIES = Path(__file__).with_name("model_factories.py")
PEERS = ("torch.compile", "max-autotune-no-cudagraphs", "eager")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all of {' '.join(NAMES)}")
    parser.add_argument("--budget", default="10min", metavar="TIME", help="for each (default 10min)")
    parser.add_argument("--answers", type=Path, metavar="FOLDER", help="gets each answer as NAME.json")
    parser.add_argument(
        "--no-max-autotune", action="store_true", help="compare with torch.compile's default only"
    )


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields three rows for each model."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("models needs a CUDA GPU, and torch finds none.")
    if unknown := set(options.names) - set(NAMES):
        raise SystemExit(f"There is no model {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}.")
    found: list[Row] = []
    begun = time.monotonic()
    for name in options.names or NAMES:
        package = NEEDS.get(name)
        if package and importlib.util.find_spec(package) is None:
            print(f"{name} is left out: {package} is not installed.", flush=True)
            continue
        answer = _answer(name, options)
        if answer is None:
            print(f"{name} is left out: the command failed.", flush=True)
            continue
        own = list(_rows(name, answer))
        found += own
        rows.write(options.out, "models", found, time.monotonic() - begun, [])
        yield from own


def _answer(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """What the command answers for a model, in a project that knows nothing; None if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answer.json")
        given = ["optimize", f"{FACTORIES}:{name}", "--budget", options.budget, "--json", str(file)]
        given += ["--generator", "inductor"]
        given += ["--no-max-autotune"] if options.no_max_autotune else []
        environment = {**os.environ, "PYTHONPATH": f"{rows.ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        begun = time.monotonic()
        subprocess.run([*command("kernelllm"), *given], cwd=folder, env=environment, check=False)
        if not file.exists():
            return None
        answer: dict[str, Any] = json.loads(file.read_text())
    answer["seconds"] = time.monotonic() - begun
    if options.answers:
        options.answers.mkdir(parents=True, exist_ok=True)
        (options.answers / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")
    return answer


def _rows(name: str, answer: dict[str, Any]) -> Iterator[Row]:
    ways = {way["name"]: way for way in answer["ways"]}
    chosen, compiled = ways["chosen"], ways["torch.compile"]
    kept = [each["name"] for each in answer["choices"] if each["kept"]]
    notes = [f"{answer['seconds']:.0f} s", f"kept: {', '.join(kept) or 'nothing'}"]
    if chosen["error"] and compiled["error"]:
        notes.append(f"error {chosen['error'] / compiled['error']:.2f} of torch.compile's")
    if answer["limit_share"]:
        notes.append(f"{answer['limit_share']:.0%} of the limit of {answer['limit_ms']:.2f} ms")
    for peer in PEERS:
        way = ways.get(peer)
        if way and way["ratio"] and way["ms"]:
            ratio = way["ratio"]
            note = "; ".join(notes) if peer == PEERS[0] else ""
            ends = ratio["low"], ratio["high"]
            yield Row(name, peer, way["ms"], chosen["ms"], "ms", ratio["value"], *ends, note)
