"""A small Llama trained in every way from the same weights: ``training.py --llama``."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from interleaved import synchronize
from judged import outcomes
from llama import MARKED, llama_config
from passes import Way
from torch import nn
from train_blocks import WAYS
from transformers import LlamaForCausalLM

from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import DISPATCHER, explain
from pytest_kernelllm.session.session import open_session


def train_llama(folder: Path, options: argparse.Namespace, device: str) -> dict[str, Any]:
    """Trains the model in every way, prints how far the losses are apart, and returns them with the speeds."""
    (folder / "marked.py").write_text(MARKED.format(**vars(options), training=True))
    with open_session(folder, Settings(generator="inductor", samples=options.samples)) as session:
        outcomes(session, scan_file(folder / "marked.py", folder).targets)
    batches = _batches(options, device)
    turned = [batch.flip(0) for batch in batches]
    runs: dict[str, tuple[list[float], float]] = {}
    for name, data in {
        "eager": batches,
        "eager again": batches,
        "eager, rows turned round": turned,
        "torch.compile": batches,
        "ours": batches,
    }.items():
        if name in WAYS and name not in options.ways:
            continue
        model = _model(options, device)
        if name == "ours":
            print(optimize_model(model, store=folder / ".kernelllm"))
            _refuse_originals(model, data[0])
        way = torch.compile(model) if name == "torch.compile" else model
        runs[name] = _train(way, model, data, options, device)
    eager = runs["eager"][0]
    print(
        f"\n{'':<26}{'first loss':>11}{'last loss':>11}{'mean |Δ|':>11}{'most |Δ|':>11}{'tokens/s':>12}{'ratio':>8}"
    )
    for name, (losses, speed) in runs.items():
        apart = _apart(losses, eager)
        shown = f"{losses[0]:>11.4f}{losses[-1]:>11.4f}{statistics.mean(apart):>11.2e}{max(apart):>11.2e}"
        print(f"{name:<26}{shown}{speed:>12,.0f}{speed / runs['eager'][1]:>8.3f}")
    for name in ("eager again", "eager, rows turned round", "torch.compile"):
        if "ours" in runs and name in runs and (mean := statistics.mean(_apart(runs[name][0], eager))):
            times = statistics.mean(_apart(runs["ours"][0], eager)) / mean
            print(f"mean |Δ| of ours from eager: {times:.2f} times that of {name}")
    return {"runs": {name: {"losses": losses, "tokens/s": speed} for name, (losses, speed) in runs.items()}}


def _apart(losses: list[float], eager: list[float]) -> list[float]:
    return [abs(a - b) for a, b in zip(losses, eager, strict=True)]


def _model(options: argparse.Namespace, device: str) -> Any:
    torch.manual_seed(options.seed)
    with torch.device(device):
        return LlamaForCausalLM(llama_config(options)).to(getattr(torch, options.dtype)).train()


def _batches(options: argparse.Namespace, device: str) -> list[torch.Tensor]:
    """Returns token sequences that can be learned: each token mostly follows from the one before it."""
    generator = torch.Generator().manual_seed(options.seed)
    vocabulary = options.vocabulary
    tokens = torch.empty(options.steps, options.batch, options.seq, dtype=torch.int64)
    tokens[..., 0] = torch.randint(vocabulary, tokens.shape[:2], generator=generator)
    for place in range(1, options.seq):
        noise = torch.randint(4, tokens.shape[:2], generator=generator)
        tokens[..., place] = (tokens[..., place - 1] * 5 + 17 + noise) % min(vocabulary, 1024)
    return list(tokens.to(device))


def _refuse_originals(model: nn.Module, batch: torch.Tensor) -> None:
    """Makes sure that every kernel that was placed also runs: a model that fell back would train just like eager.

    Raises:
        RuntimeError: none was placed, or a call is outside a kernel's domain.
    """
    said: list[str] = []

    def ask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        said.append(explain(module, *args, **kwargs))

    hooks = [module.register_forward_pre_hook(ask, with_kwargs=True) for module in _placed(model)]
    model(batch, labels=batch, use_cache=False)
    for hook in hooks:
        hook.remove()
    if not said or not all("runs the kernel" in each for each in said):
        raise RuntimeError("\n".join(dict.fromkeys(said)) or "no kernel was placed in the model")


def _placed(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if hasattr(type(module).forward, DISPATCHER)]


def _train(
    way: Way, model: nn.Module, batches: list[torch.Tensor], options: argparse.Namespace, device: str
) -> tuple[list[float], float]:
    """Returns the loss at each step, and tokens per second after the first tenth of the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, fused=device == "cuda")
    losses: list[torch.Tensor] = []
    warm = max(1, len(batches) // 10)
    start = 0.0
    for step, batch in enumerate(batches):
        if step == warm:
            synchronize(device)
            start = time.perf_counter()
        loss = way(batch, labels=batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    synchronize(device)
    seconds = time.perf_counter() - start
    return [float(loss) for loss in losses], (len(batches) - warm) * batches[0].numel() / seconds
