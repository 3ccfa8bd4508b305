"""The blocks of ``examples/training_blocks`` in training, each in every way: what ``training.py`` compares."""

from __future__ import annotations

import argparse
import copy
import importlib
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from interleaved import ratio
from judged import outcomes
from passes import Way, error_of, peak_of, results, times_of
from torch import nn

from kernelllm_judge.in_memory import JudgedKernel, adopt
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import explain
from pytest_kernelllm.session.session import open_session

BLOCKS = Path(__file__).parents[1] / "examples" / "training_blocks" / "training_blocks"
NAMES = ("RMSNorm", "LayerNorm", "SwiGLU", "GEGLU", "RotaryEmbedding", "SoftmaxCrossEntropy")
WAYS = ("eager", "torch.compile", "ours", "liger")


def compare_blocks(folder: Path, options: argparse.Namespace, device: str) -> dict[str, Any]:
    """Compares all ways of each block, prints them, and returns the figures."""
    shutil.copytree(BLOCKS, folder / BLOCKS.name)
    sys.path.insert(0, str(folder))
    package = importlib.import_module(BLOCKS.name)
    files = sorted((folder / BLOCKS.name).glob("*.py"))
    targets = {target.name: target for file in files for target in scan_file(file, folder).targets}
    accepted: dict[str, list[Outcome]] = {}
    if "ours" in options.ways:
        with open_session(folder, Settings(generator="inductor", samples=options.samples)) as session:
            judged = outcomes(session, [targets[name] for name in options.only])
        accepted = {
            target.name: [o for o in each if o.verdict and o.verdict.accepted]
            for target, each in judged.items()
        }
    print(
        f"\n{'':<34}{'forward µs':>11}{'backward µs':>12}{'peak MiB':>10}  {'eager / way, both passes':<26}{'error':>8}"
    )
    result = {}
    for name in options.only:
        result[name] = _block(package, name, accepted.get(name, []), options, device)
    return {"blocks": result}


def _block(
    package: Any, name: str, accepted: list[Outcome], options: argparse.Namespace, device: str
) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    with torch.device(device):
        module, values = _called(package, name, options)
    module = module.to(torch.bfloat16).train()
    values = tuple(v.to(torch.bfloat16) if v.is_floating_point() else v for v in values)
    ways: dict[str, Way] = {"eager": module}
    if "torch.compile" in options.ways:
        ways["torch.compile"] = torch.compile(copy.deepcopy(module), dynamic=False)
    if "liger" in options.ways and (liger := _liger(name, copy.deepcopy(module))) is not None:
        ways["liger"] = liger
    if accepted:
        ways["ours"] = _fastest(module, values, accepted, device)
    eager = results(module, values)
    errors, failed = {}, {}
    for way, call in list(ways.items()):
        try:
            errors[way] = error_of(results(call, values), eager)
        except Exception as error:
            if way != "liger":  # not ours to mend, and no reason to lose the other figures
                raise
            failed[way] = f"{type(error).__name__}: {error}"
            del ways[way]
    times = times_of(ways, values, options.rounds, device)
    peaks = {way: peak_of(call, values, device) for way, call in ways.items()}
    print(name)
    for way, passes in times.items():
        base = [sum(pair) for pair in times["eager"]]
        shown = "{:.3f} [{:.3f}, {:.3f}]".format(*ratio(base, [sum(pair) for pair in passes]))
        forward, backward = (statistics.median(part) for part in zip(*passes, strict=True))
        peak = peaks[way] / 2**20
        print(f"  {way:<32}{forward:>11.1f}{backward:>12.1f}{peak:>10.1f}  {shown:<26}{errors[way]:>8.1e}")
    for way, reason in failed.items():
        print(f"  {way:<32}failed: {reason[:120]}")
    return {"microseconds": times, "peak": peaks, "errors": errors, "failed": failed}


def _called(
    package: Any, name: str, options: argparse.Namespace
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a block, and its inputs at the asked sizes."""
    sizes = {"batch": options.batch, "seq": options.seq}
    if name in ("RMSNorm", "LayerNorm"):
        return getattr(package, name)(4096), (package.norms.hidden_states(**sizes),)
    if name == "RotaryEmbedding":
        return package.RotaryEmbedding(128), package.rotary.attention_heads(**sizes)
    if name == "SoftmaxCrossEntropy":
        tokens = options.batch * options.seq
        return package.SoftmaxCrossEntropy(), package.losses.predictions(tokens, options.vocabulary)
    return getattr(package, name)(), package.activations.projections(**sizes, width=options.width)


def _liger(name: str, module: Any) -> Way | None:
    """Returns Liger-Kernel's own for a block with the same weights; None where Liger is not installed."""
    try:
        from liger_kernel import ops
        from liger_kernel.transformers import LigerCrossEntropyLoss
    except ImportError:
        return None
    ways: dict[str, Way] = {
        # As LlamaRMSNorm: statistics in float32. Its in_place=True would overwrite the incoming gradient.
        "RMSNorm": lambda x: ops.LigerRMSNormFunction.apply(
            x, module.weight, module.eps, 0.0, "llama", False
        ),
        "LayerNorm": lambda x: ops.LigerLayerNormFunction.apply(x, module.weight, module.bias, module.eps),
        "SwiGLU": ops.LigerSiLUMulFunction.apply,
        "GEGLU": ops.LigerGELUMulFunction.apply,
        "RotaryEmbedding": lambda q, k: ops.LigerRopeFunction.apply(
            q, k, module.cos[None, : q.shape[2]], module.sin[None, : q.shape[2]]
        ),
        "SoftmaxCrossEntropy": LigerCrossEntropyLoss(),
    }
    return _Holding(ways[name], module)


class _Holding(nn.Module):
    """A function with the parameters that it reads."""

    def __init__(self, function: Way, module: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.module = module

    def forward(self, *values: torch.Tensor) -> Any:
        return self.function(*values)


def _fastest(
    module: nn.Module,
    values: Sequence[torch.Tensor],
    accepted: list[Outcome],
    device: str,
) -> nn.Module:
    """Returns the block with the accepted kernel that is fastest over both passes, in rounds of their own."""
    ways: dict[str, Way] = {}
    for outcome in accepted:
        assert outcome.verdict is not None and outcome.candidate is not None
        adopted = copy.deepcopy(module)
        adopt(adopted, JudgedKernel(outcome.verdict, outcome.candidate.source, type(module)))
        if "runs the kernel" not in (said := explain(adopted, *values)):
            raise RuntimeError(said)
        ways[outcome.candidate.note] = adopted
    times = times_of(ways, values, 5, device)
    best = min(times, key=lambda note: statistics.median(map(sum, times[note])))
    print(f"{type(module).__name__}: of {len(ways)} accepted, {best!r}")
    chosen = ways[best]
    assert isinstance(chosen, nn.Module)
    return chosen
