"""``optimize_model`` on a Llama with random weights, end to end: against eager and ``torch.compile``, in one run, interleaved.

    python benchmarks/optimize.py [--hidden 4096] [--layers 8] [--batch 1] [--seq 2048] [--dtype bfloat16] [--out optimize.json]

Marks LlamaRMSNorm and LlamaMLP, has kernels for them written and judged here (``--generator``, ``--samples``), and times one
forward pass of the whole model without cache. All ways share the same weights. A ratio is taken in each round, which runs
every way once in random order; printed is the rounds' geometric mean with Student's 95 % interval. Needs a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.optimize.environment import interpreting
from pytest_kernelllm.session.session import open_session

MARKED = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from pytest_kernelllm import triton_candidate


def hidden_states(batch={batch}, seq={seq}):
    return torch.randn(batch, seq, {hidden})


def config():
    return (LlamaConfig(hidden_size={hidden}, intermediate_size={intermediate}),)


SIZES = {{"batch": (1, {batch}), "seq": (1, {seq})}}
triton_candidate(LlamaRMSNorm, inputs=hidden_states, init=({hidden},), dtypes=("{dtype}",), dims=SIZES)
triton_candidate(LlamaMLP, inputs=hidden_states, init=config, dtypes=("{dtype}",), dims=SIZES)
"""

STUDENT = {5: 2.776, 10: 2.262, 20: 2.093, 30: 2.045, 50: 2.010}
"""Two-sided 95 % quantile of Student's t, by number of rounds."""


def main() -> int:
    options = _options()
    if not torch.cuda.is_available() and not interpreting():
        print("benchmarks/optimize.py needs a CUDA GPU, and torch finds none.", file=sys.stderr)
        return 2
    device = "cpu" if interpreting() else "cuda"
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(_config(options)).to(getattr(torch, options.dtype)).eval()
        tokens = torch.randint(options.vocabulary, (options.batch, options.seq))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        project = Path(folder)
        _judge(project, options)
        ways = _ways(model, project / ".kernelllm", device)
        errors = _errors(ways, tokens)
        times = _times(ways, tokens, options.rounds, device)
    return _print(options, errors, times)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    for name, value in {
        "hidden": 4096,
        "intermediate": 14336,
        "heads": 32,
        "kv-heads": 8,
        "layers": 8,
        "vocabulary": 32000,
        "batch": 1,
        "seq": 2048,
        "samples": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=30, choices=sorted(STUDENT))
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--generator", default="inductor")
    parser.add_argument("--out", metavar="FILE", help="write every time as JSON")
    return parser.parse_args()


def _config(options: argparse.Namespace) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        num_hidden_layers=options.layers,
    )


def _judge(project: Path, options: argparse.Namespace) -> None:
    """Have kernels written, proven and timed for both classes."""
    (project / "marked.py").write_text(MARKED.format(**vars(options)))
    settings = Settings(generator=options.generator, samples=options.samples)
    with open_session(project, settings) as session:
        for target in scan_file(project / "marked.py", project).targets:
            for candidate in session.candidate_ids:
                session.expect(target, candidate)
            for candidate in session.candidate_ids:
                outcome = session.outcome(target, candidate)
                reason = outcome.verdict.reason or "accepted" if outcome.verdict else outcome.reason
                print(f"{target.name}, {candidate}: {reason}")


def _ways(model: torch.nn.Module, store: Path, device: str) -> dict[str, Callable[..., Any]]:
    """Every way to run the model, by name, eager first; all on the same weights."""
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}

    def again() -> Any:
        return copy.deepcopy(model, dict(shared))

    optimized = again()
    print(optimize_model(optimized, store=store), end="\n\n")
    ways = {"eager": model, "optimize_model": optimized, "torch.compile": torch.compile(again())}
    if device == "cuda":
        graphed = again()
        optimize_model(graphed, store=store, cuda_graphs=True)
        ways["optimize_model, CUDA graphs"] = graphed
        ways["torch.compile, reduce-overhead"] = torch.compile(again(), mode="reduce-overhead")
    return ways


def _forward(way: Callable[..., Any], tokens: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = way(tokens, use_cache=False, logits_to_keep=1).logits
    return logits


def _errors(ways: dict[str, Callable[..., Any]], tokens: torch.Tensor) -> dict[str, float]:
    """How far the logits of each way are from eager's at most, as a share of the largest of those. Warms up."""
    for _ in range(3):
        logits = {name: _forward(way, tokens).float().clone() for name, way in ways.items()}
    eager = logits["eager"]
    return {name: float((out - eager).abs().max() / eager.abs().max()) for name, out in logits.items()}


def _times(
    ways: dict[str, Callable[..., Any]], tokens: torch.Tensor, rounds: int, device: str
) -> dict[str, list[float]]:
    """Milliseconds of one forward pass, for each way and round, from the call to the end of the GPU's work."""
    order = list(ways)
    times: dict[str, list[float]] = {name: [] for name in ways}
    shuffle = random.Random(0)
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            _synchronize(device)
            start = time.perf_counter()
            _forward(ways[name], tokens)
            _synchronize(device)
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _print(options: argparse.Namespace, errors: dict[str, float], times: dict[str, list[float]]) -> int:
    where = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "Triton's interpreter: no measure of anything"
    )
    print(
        f"{where}, torch {torch.__version__}, {options.layers} layers of width {options.hidden}, {options.dtype}, ",
        end="",
    )
    print(f"batch {options.batch}, {options.seq} tokens, {options.rounds} rounds")
    print(f"{'':<32}{'ms':>10}  {'over eager':>22}  {'over torch.compile':>22}  {'logits off by':>14}")
    for name, own in times.items():
        ratios = [ratio(times[base], own) for base in ("eager", "torch.compile")]
        shown = "".join(f"  {value:>8.3f} [{low:.3f}, {high:.3f}]" for value, low, high in ratios)
        print(f"{name:<32}{statistics.median(own):>10.3f}{shown}  {errors[name]:>14.1e}")
    if options.out:
        result = {"where": where, "torch": torch.__version__, **vars(options), "errors": errors, "ms": times}
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def ratio(base: list[float], own: list[float]) -> tuple[float, float, float]:
    """How many times as fast, with its interval, over the rounds."""
    logs = [math.log(b / o) for b, o in zip(base, own, strict=True)]
    middle = statistics.mean(logs)
    half = STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


if __name__ == "__main__":
    sys.exit(main())
