"""How far the addresses of Inductor's kernels for KernelBench's problems are proven, at the problems' own sizes.

Problems are drawn from levels 1 and 2 with a seed. Nothing is run: a certificate needs no values, so that no GPU is needed.

    python -m benchmarks certificates --kernelbench CHECKOUT [--problems 70] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.rows import Row
from kernelllm_judge.addresses.calls import ASPECTS
from kernelllm_judge.addresses.certify import Certifier
from kernelllm_judge.core.records import REACHES, Certificate
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.pair_files import find_reference
from kernelllm_judge.plans import Plan
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.render import render
from kernelllm_judge.supervisor import ForkServer
from kernelllm_judge.target.live import load_target
from kernelllm_judge.workers import Workers
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

ARCH = "sm_90"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--problems", type=int, default=70, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each problem without a proof, then the shares of those that have kernels."""
    folder = options.kernelbench.resolve()
    files = [file for level in (1, 2) for file in sorted(folder.rglob(f"level{level}/[0-9]*.py"))]
    if not files:
        raise SystemExit(f"{options.kernelbench} holds no level1; name a checkout of KernelBench.")
    drawn = random.Random(options.seed).sample(files, min(options.problems, len(files)))
    found = []
    server = ForkServer("compile", probe_isolation("cpu"), ARCH)
    try:
        for file in drawn:
            outcome = _certified(file, Workers(server, torch.device("cpu"), 60.0))
            if isinstance(outcome, Certificate):
                found.append(outcome)
            if isinstance(outcome, str) or outcome.why:
                why = outcome if isinstance(outcome, str) else outcome.why
                yield Row(f"{file.parent.name}/{file.stem}", "", None, None, "", note=why)
    finally:
        server.close()
    for aspect in ASPECTS:
        reached = Counter(getattr(each, aspect) for each in found)
        proven = sum(reached[reach] for reach in REACHES if reach != "sampled")
        note = ", ".join(f"{reached[reach]} {reach}" for reach in reversed(REACHES))
        yield Row(f"{aspect} proven at their sizes", "", None, 100 * proven / len(found), "%", note=note)
    yield Row("a certificate, median", "", None, statistics.median(c.seconds for c in found), "s")


def _certified(file: Path, workers: Workers) -> Certificate | str:
    """Returns the certificate of the first kernel that is written for a problem; a text says why there is none."""
    live = load_target(file.parent, find_reference(str(file), file.parent))
    ((_, completion),) = InductorGenerator(ARCH).generate([Request(live.target, (0,), lambda: live)])
    try:
        candidate = render(completion, live, on_gpu=True)
    except RenderError as none:
        return f"{none}"
    [case, *_] = live.cases
    findings = Findings({"addresses": "correctness"})
    with workers.loaded(candidate.source, None, findings) as judging:  # type: ignore[arg-type]  # it asks for no outputs
        certifier = Certifier(judging.worker, findings, 0)
        try:
            plan = Plan(case, (), (), dict(case.domain.dims), dict(case.sizes))
            certifier.add(plan, live.build(case))
        except Decision as wrong:
            return wrong.reason
    return certifier.certificate()
