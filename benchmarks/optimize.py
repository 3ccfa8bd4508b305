"""``optimize_model`` on a whole model with random weights: against eager and ``torch.compile``, in one run, interleaved.

    python benchmarks/optimize.py [--model llama] [--hidden 4096] [--layers 8] [--batch 1] [--seq 2048 64] [--out optimize.json]
    python benchmarks/optimize.py --model convnext --batch 32

Marks the model's modules (LlamaRMSNorm, LlamaMLP and whole LlamaDecoderLayers, or ConvNextLayer and ConvNextLayerNorm in each
width), has kernels for them written and judged here (``--generator``, ``--samples``), and times one forward pass of the whole
model without cache: alone, inside ``torch.compile``'s graph, and as CUDA graphs. Kernels are placed by ``optimize_model``'s own
measurement at these calls. All ways share the same weights. A ratio is taken in each round, which runs every way once in random
order; printed is the rounds' geometric mean with Student's 95 % interval, and the GPU's time by class of module, before and after.
Needs a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from interleaved import STUDENT, interleaved, ratio, synchronize, where
from judged import outcomes
from llama import LAYER, MARKED, llama_config
from transformers import ConvNextConfig, ConvNextForImageClassification, LlamaForCausalLM

from kernelllm_runtime.instance import OWN_CLASS
from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.applies import interpreting
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.session.session import open_session

MARKED_CONVNEXT = """
import torch
from transformers import ConvNextConfig
from transformers.models.convnext.modeling_convnext import ConvNextLayer, ConvNextLayerNorm

from pytest_kernelllm import triton_candidate


def features(batch={batch}):
    return torch.randn(batch, {width}, {size}, {size})


def positions(batch={batch}):
    return torch.randn(batch, {size}, {size}, {width})


def layer():
    return (ConvNextConfig(), {width})


def norm():
    return ({width},), {{"eps": 1e-6, "data_format": "channels_last"}}


SIZES = {{"batch": (1, {batch})}}
triton_candidate(ConvNextLayer, inputs=features, init=layer, dtypes=("{dtype}",), dims=SIZES)
triton_candidate(ConvNextLayerNorm, inputs=positions, init=norm, dtypes=("{dtype}",), dims=SIZES)
"""

SIDE = 224
"""Pixels of an image's side for ConvNeXt."""

Call = Callable[[Callable[..., Any]], torch.Tensor]
"""Calls one way to run a model, with the inputs that are timed."""


def main() -> int:
    options = _options()
    if not torch.cuda.is_available() and not interpreting():
        print("benchmarks/optimize.py needs a CUDA GPU, and torch finds none.", file=sys.stderr)
        return 2
    device = "cpu" if interpreting() else "cuda"
    os.environ["KERNELLLM_COMPILE"] = "1"  # or torch.compile would see the originals
    torch.manual_seed(0)
    results = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        project = Path(folder)
        for seq in options.seq if options.model == "llama" else [0]:
            with torch.device(device):
                model, call = _model(options, seq)
            _judge(project / f"seq_{seq}", options, seq)
            ways = _ways(model, call, project / f"seq_{seq}" / ".kernelllm", device)
            errors = _errors(ways, call)
            times = _times(ways, call, options.rounds, device)
            results.append(_print(options, seq, where(device), errors, times))
            for name in ("eager", "optimize_model"):
                _print_modules(name, ways[name], call, device)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _model(options: argparse.Namespace, seq: int) -> tuple[torch.nn.Module, Call]:
    """Returns a model, and the call of it that is timed."""
    kind = getattr(torch, options.dtype)
    if options.model == "llama":
        tokens = torch.randint(options.vocabulary, (options.batch, seq))
        return LlamaForCausalLM(llama_config(options)).to(
            kind
        ).eval(), lambda way: way(tokens, use_cache=False, logits_to_keep=1).logits
    pixels = torch.randn(options.batch, 3, SIDE, SIDE, dtype=kind)
    return ConvNextForImageClassification(ConvNextConfig()).to(kind).eval(), lambda way: way(pixels).logits


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
        "samples": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="llama", choices=("llama", "convnext"))
    parser.add_argument("--seq", type=int, nargs="+", default=[2048, 64], help="tokens, for llama")
    parser.add_argument("--rounds", type=int, default=30, choices=sorted(STUDENT))
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--generator", default="inductor")
    parser.add_argument("--out", metavar="FILE", help="write every time as JSON")
    return parser.parse_args()


def _judge(project: Path, options: argparse.Namespace, seq: int) -> None:
    """Have kernels written, proven and timed for all classes."""
    project.mkdir()
    if options.model == "llama":
        given = {**vars(options), "seq": seq, "training": False}
        (project / "marked.py").write_text((MARKED + LAYER).format(**given))
    else:
        for stage, width in enumerate(ConvNextConfig().hidden_sizes):
            sizes = {**vars(options), "width": width, "size": SIDE // 4 >> stage}
            (project / f"marked_{width}.py").write_text(MARKED_CONVNEXT.format(**sizes))
    settings = Settings(generator=options.generator, samples=options.samples)
    with open_session(project, settings) as session:
        outcomes(session, scan([project], project).targets)


def _ways(model: torch.nn.Module, call: Call, store: Path, device: str) -> dict[str, Callable[..., Any]]:
    """Every way to run the model, by name, eager first; all on the same weights."""
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}

    def again() -> Any:
        return copy.deepcopy(model, dict(shared))

    def optimized(**how: bool | str) -> Any:
        copied = again()
        print(optimize_model(copied, store=store, example=lambda: call(copied), **how), end="\n\n")
        return copied

    ways = {
        "eager": model,
        "optimize_model": optimized(),
        "torch.compile": torch.compile(again()),
        "optimize_model in torch.compile": torch.compile(optimized(compiled=True)),
    }
    if device == "cuda":
        ways["optimize_model, CUDA graphs"] = optimized(cuda_graphs=True)
        ways["torch.compile, reduce-overhead"] = torch.compile(again(), mode="reduce-overhead")
        both = optimized(compiled="reduce-overhead")
        ways["optimize_model in reduce-overhead"] = torch.compile(both, mode="reduce-overhead")
    return ways


def _errors(ways: dict[str, Callable[..., Any]], call: Call) -> dict[str, float]:
    """How far the logits of each way are from eager's at most, as a share of the largest of those. Warms up."""
    for _ in range(3):
        logits = {name: call(way).float().clone() for name, way in ways.items()}
    eager = logits["eager"]
    return {name: float((out - eager).abs().max() / eager.abs().max()) for name, out in logits.items()}


def _times(
    ways: dict[str, Callable[..., Any]], call: Call, rounds: int, device: str
) -> dict[str, list[float]]:
    """Milliseconds of one forward pass, for each way and round, from the call to the end of the GPU's work."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _, name in interleaved(ways, rounds):
        call(ways[name])  # the first call after other ways' looks for its compiled code among theirs
        synchronize(device)
        start = time.perf_counter()
        call(ways[name])
        synchronize(device)
        times[name].append((time.perf_counter() - start) * 1e3)
    return times


def _print_modules(name: str, model: torch.nn.Module, call: Call, device: str) -> None:
    """Prints the time within each class of module: of modules without children, and of those whose kernel takes their place."""
    spent: Counter[str] = Counter()
    begun: dict[int, float] = {}

    def now() -> float:
        synchronize(device)
        return time.perf_counter()

    def before(module: torch.nn.Module, *_: Any) -> None:
        begun[id(module)] = now()

    def after(module: torch.nn.Module, *_: Any) -> None:
        spent[type(module).__name__] += (now() - begun[id(module)]) * 1e3

    kernels = [module for module in model.modules() if hasattr(type(module), OWN_CLASS)]
    inside = {id(child) for module in kernels for child in module.modules() if child is not module}
    leaves = [m for m in model.modules() if not list(m.children()) or m in kernels]
    handles = []
    for module in leaves:
        if id(module) not in inside:
            handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    call(model)
    start, _ = now(), spent.clear()
    call(model)
    whole = (now() - start) * 1e3
    for handle in handles:
        handle.remove()
    spent["the rest"] = whole - sum(spent.values())
    shares = ", ".join(f"{cls} {ms:.2f} ms ({ms / whole:.0%})" for cls, ms in spent.most_common(8))
    print(f"{name}, module by module, each waited for: {shares}")


def _print(
    options: argparse.Namespace, seq: int, place: str, errors: dict[str, float], times: dict[str, list[float]]
) -> dict[str, Any]:
    llama = f"{options.layers} layers of width {options.hidden}, {seq} tokens"
    what = f"Llama of {llama}" if options.model == "llama" else f"ConvNeXt at {SIDE} pixels"
    print(f"{place}, torch {torch.__version__}, {what}, {options.dtype}, ", end="")
    print(f"batch {options.batch}, {options.rounds} rounds")
    print(f"{'':<36}{'ms':>10}  {'over eager':>22}  {'over torch.compile':>22}  {'logits off by':>14}")
    for name, own in times.items():
        ratios = [ratio(times[base], own) for base in ("eager", "torch.compile")]
        shown = "".join(f"  {value:>8.3f} [{low:.3f}, {high:.3f}]" for value, low, high in ratios)
        print(f"{name:<36}{statistics.median(own):>10.3f}{shown}  {errors[name]:>14.1e}")
    known = {"where": place, "torch": torch.__version__, **vars(options), "seq": seq}
    return {**known, "errors": errors, "ms": times}


if __name__ == "__main__":
    sys.exit(main())
