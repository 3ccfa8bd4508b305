"""``optimize_model`` on whole language models with random weights, in bfloat16: beside eager and ``torch.compile``, in one run.

Marks a model's norm and MLP, has kernels for them written and judged by ``pytest --kernelllm``, places them by
``optimize_model``'s own measurement, and times one forward pass without cache: alone, and inside ``torch.compile``. All ways share
the same weights. Ratios are those of rounds that run every way once in random order. Needs a GPU.

    python -m benchmarks optimize [--model qwen3 llama] [--layers 8] [--tokens 2048] [--search 0]
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, command, interleaved, over_rounds

SIZES: dict[str, dict[str, int]] = {
    "qwen3": {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "head_dim": 128},
    "llama": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32},
}
"""Of Qwen3-4B and Llama-3.1-8B; both have eight heads for keys and values."""

MARKED = """
import torch
from transformers import {config}
from transformers.models.{model}.modeling_{model} import {name}MLP, {name}RMSNorm

from kernelllm_runtime import triton_candidate


def hidden_states(tokens={tokens}):
    return torch.randn(1, tokens, {hidden_size})


def config():
    return ({config}(hidden_size={hidden_size}, intermediate_size={intermediate_size}),)


COMMON = {{"inputs": hidden_states, "dtypes": ("bfloat16",), "dims": {{"tokens": (1, {tokens})}}}}
triton_candidate({name}RMSNorm, init=({hidden_size},), **COMMON)
triton_candidate({name}MLP, init=config, **COMMON)
"""

ROUNDS = 20


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--model", nargs="+", default=["qwen3"], choices=sorted(SIZES))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--search", type=float, default=0.0, metavar="SECONDS", help="a target")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields the ways of each model."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("optimize needs a CUDA GPU, and torch finds none.")
    os.environ["KERNELLLM_COMPILE"] = "1"  # or torch.compile would see the originals
    for name in options.model:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            store = _judged(Path(folder), name, options)
            model, call = _model(name, options)
            times, placed = _times(model, call, store)
        what = f"{name}, {options.layers} layers, {options.tokens} tokens"
        for way, peer in (
            ("torch.compile", "eager"),
            ("optimize_model", "eager"),
            ("optimize_model", "torch.compile"),
            ("optimize_model in torch.compile", "torch.compile"),
        ):
            row = over_rounds(f"{what}: {way}", peer, times[peer], times[way], "ms")
            yield Row(**{**vars(row), "note": placed.get(way, "")})


def _judged(project: Path, name: str, options: argparse.Namespace) -> Path:
    """Has kernels written and judged, and returns the store."""
    title = name.capitalize()
    text = MARKED.format(
        model=name, name=title, config=f"{title}Config", tokens=options.tokens, **SIZES[name]
    )
    (project / "marked.py").write_text(text)
    pytest = [*command("pytest"), "-q", "--kernelllm", "--kernelllm-only", "marked.py"]
    subprocess.run([*pytest, f"--kernelllm-set=search={options.search:g}"], cwd=project, check=False)
    return project / ".kernelllm"


def _model(name: str, options: argparse.Namespace) -> tuple[Any, Callable[[Any], Any]]:
    """Returns a model, and the call of it that is timed."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name.capitalize()}Config")(
        num_hidden_layers=options.layers,
        num_key_value_heads=8,
        vocab_size=32000,
        attn_implementation="sdpa",
        **SIZES[name],
    )
    with torch.device("cuda"):
        made = getattr(transformers, f"{name.capitalize()}ForCausalLM")(config).to(torch.bfloat16).eval()
        tokens = torch.randint(32000, (1, options.tokens))
    return made, lambda way: way(tokens, use_cache=False, logits_to_keep=1).logits


def _times(
    model: Any, call: Callable[[Any], Any], store: Path
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Milliseconds of one forward pass, for each way and round; and how many kernels were placed."""
    import torch

    from pytest_kernelllm import optimize_model

    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    placed: dict[str, str] = {}

    def optimized(way: str, compiled: bool) -> Any:
        copied = copy.deepcopy(model, dict(shared))
        report = optimize_model(copied, store=store, example=lambda: call(copied), compiled=compiled)
        print(report, flush=True)
        changed = sum(type(a) is not type(b) for a, b in zip(model.modules(), copied.modules(), strict=True))
        placed[way] = f"{changed} modules run a kernel"
        return copied

    ways = {
        "eager": model,
        "torch.compile": torch.compile(copy.deepcopy(model, dict(shared))),
        "optimize_model": optimized("optimize_model", False),
        "optimize_model in torch.compile": torch.compile(optimized("optimize_model in torch.compile", True)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in [*ways] * 3:
        call(ways[way])
    for way in interleaved(ways, ROUNDS):
        call(ways[way])  # the first call after another way's looks for its compiled code among theirs
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call(ways[way])
        torch.cuda.synchronize()
        times[way].append((time.perf_counter() - begun) * 1e3)
    return times, placed
