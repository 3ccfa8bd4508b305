"""A training step of a Qwen3 with random weights in bfloat16: eager, ``torch.compile``, Liger, and kernels that are judged first.

Has kernels for both passes of the norms, the gated activation, the rotary embedding and the loss written and judged by ``pytest
--kernelllm``, and times the loss with its backward pass, without an optimizer. Kernels run alone, by ``optimize_model``; and inside
``torch.compile``, where they are the modules' ``forward``, as Liger's are, because adopted classes leave compiled calls with
gradients to the original. All ways share the same weights. Ratios are those of rounds that run every way once in random order.
Errors are relative to a copy in float64; that of gradients is the largest of any parameter, by norms. Needs a GPU; ``--small`` runs
a tiny model in float32 in Triton's interpreter instead, whose times say nothing.

    python -m benchmarks training [--layers 8] [--tokens 2048] [--samples 2] [--limit 110] [--small]
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

from benchmarks.optimize import SIZES
from benchmarks.rows import Row, command, interleaved, less, over_rounds

FULL = {**SIZES["qwen3"], "num_key_value_heads": 8, "vocab_size": 32000}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
}

TARGETS = ("Qwen3RMSNorm", "SwiGLU", "Rotary", "Loss")
"""What ``training_targets.py`` marks."""

OURS = ("kernels", "kernels in torch.compile")

LATEST = 200.0
"""Seconds after which no other way is begun, so that all of it takes 280 at most."""


@dataclass(frozen=True)
class Way:
    """One way to run the model: what is called, and the function that its attention calls for the rotary embedding."""

    model: Any
    rotary: Callable[..., Any]


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=2, help="candidates for each target")
    parser.add_argument(
        "--limit", type=float, default=110.0, metavar="SECONDS", help="what is not judged then stays as it is"
    )
    parser.add_argument("--small", action="store_true", help="a tiny model, without a GPU")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields the times of both ways to run kernels, the memory of the faster one, and the errors of both."""
    rounds = 5 if options.small else 20
    if options.small:
        os.environ |= {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"}  # read when Triton is imported
        options.layers, options.tokens, options.samples = 2, 16, 1
    import torch

    if not options.small and not torch.cuda.is_available():
        raise SystemExit("training needs a CUDA GPU, and torch finds none; --small needs none.")
    torch._dynamo.config.recompile_limit = 64  # ways share the code that is compiled
    end = math.inf if options.small else time.monotonic() + LATEST
    with tempfile.TemporaryDirectory() as folder:
        targets, seconds = _judged(Path(folder), options)
        ways, tokens, note = _ways(targets, Path(folder, ".kernelllm"), options)
        steps = _warm(ways, tokens, end)
        model = ways["eager"].model
        memory = {} if options.small else {name: _peak(model, step) for name, step in steps.items()}
        times = _times(model, steps, rounds)
        errors = _errors(ways["eager"], steps, tokens)
    what = f"Qwen3, {options.layers} layers, {options.tokens} tokens"
    peers = [name for name in steps if name not in OURS]
    found = [name for name in OURS if name in steps]
    ours = min(found, key=lambda name: statistics.median(times[name]))
    for name in found:
        for peer in peers:
            row = over_rounds(f"{what}: {name}", peer, times[peer], times[name], "ms")
            faster = "the faster of both; " if name == ours else ""
            yield replace(row, note=f"{faster}{note}; judged in {seconds:.0f} s" if peer == peers[0] else "")
    for peer in peers if memory else ():
        yield less(f"{what}: memory of a step, {ours}", peer, memory[peer], memory[ours], "GiB")
    for name in found:
        for which, peer in (("loss", "torch.compile"), *(("gradients", peer) for peer in peers)):
            theirs, own = errors[peer][which], errors[name][which]
            note = f"{own / theirs:.2f} of {peer}'s" if theirs else ""
            yield Row(f"{what}: error of {which}, {name}", peer, theirs, own, "", note=note)


def _judged(project: Path, options: argparse.Namespace) -> tuple[Any, float]:
    """Has kernels written and judged until the limit; returns the module that marks their targets, and the seconds."""
    config = {**(SMALL if options.small else FULL), "num_hidden_layers": options.layers}
    dtype = "float32" if options.small else "bfloat16"
    sizes = {"config": config, "tokens": options.tokens, "dtype": dtype}
    (project / "sizes.json").write_text(json.dumps(sizes))
    file = Path(shutil.copy(Path(__file__).with_name("training_targets.py"), project))
    pytest = [*command("pytest"), "-q", "--kernelllm", "--kernelllm-only", "--kernelllm-set=search=0"]
    pytest += [f"--kernelllm-samples={options.samples}", file.name]
    path = os.pathsep.join(sys.path)  # this checkout as well, from the project's folder
    begun = time.monotonic()
    judging = subprocess.Popen(pytest, cwd=project, env={**os.environ, "PYTHONPATH": path})
    try:
        judging.wait(options.limit)
    except subprocess.TimeoutExpired:
        judging.send_signal(signal.SIGINT)  # what was judged is kept
        judging.wait()
    seconds = time.monotonic() - begun
    if not (project / ".kernelllm").exists():
        raise SystemExit(f"Nothing was judged in {seconds:.0f} s; give a longer --limit.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    targets = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(targets)
    return targets, seconds


def _ways(targets: Any, store: Path, options: argparse.Namespace) -> tuple[dict[str, Way], Any, str]:
    """Returns the ways by name, the tokens, and which modules run kernels."""
    import torch
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device("cpu" if options.small else "cuda"):
        dtype = torch.float32 if options.small else torch.bfloat16
        model = Qwen3ForCausalLM(targets.CONFIG).to(dtype).train()
        tokens = torch.randint(targets.CONFIG.vocab_size, (1, options.tokens))
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}

    def copied() -> Any:
        return copy.deepcopy(model, dict(shared))

    def compiled(way: Way) -> Way:
        return replace(way, model=torch.compile(way.model))

    eager = Way(model, targets.apply_rotary_pos_emb)
    kernels, running = _with_kernels(copied(), targets, store, tokens)
    ways = {"eager": eager, "torch.compile": compiled(replace(eager, model=copied())), "kernels": kernels}
    if options.small:
        print("kernels in torch.compile are left out: it cannot compile Triton's interpreter.", flush=True)
    else:
        direct, _ = _with_kernels(copied(), targets, store, tokens, direct=True)
        ways["kernels in torch.compile"] = compiled(direct)
    if options.small or importlib.util.find_spec("liger_kernel") is None:
        print("Liger is left out: it is not installed, or there is no GPU.", flush=True)
    else:
        liger = _with_liger(copied())
        ways |= {"Liger": liger, "Liger in torch.compile": compiled(liger)}
    note = ", ".join(f"{name} ×{running[name]}" for name in TARGETS if name in running)
    left = ", ".join(name for name in TARGETS if name not in running)
    return ways, tokens, f"kernels: {note or 'none'}; left to the original: {left or 'nothing'}"


def _with_kernels(
    model: Any, targets: Any, store: Path, tokens: Any, *, direct: bool = False
) -> tuple[Way, Counter[str]]:
    """Places the accepted kernels in a model, and returns how many modules of each class run one in a step.

    ``direct``: they are the modules' ``forward``, without the check whether a call is in their domain.
    """
    import torch
    from torch.nn.functional import pad

    from kernelllm_runtime.adopted import DISPATCHER
    from pytest_kernelllm import optimize_model
    from pytest_kernelllm.runtime import explain

    model.turned = targets.Rotary(targets.CONFIG, tokens.shape[1]).to(tokens.device, model.dtype)
    # Of the model's own frequencies, which have its dtype.
    positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
    model.turned.cos, model.turned.sin = model.model.rotary_emb(model.turned.cos, positions)
    model.gated, model.objective = targets.SwiGLU(), targets.Loss()

    def rotary(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
        q, k = model.turned(q.transpose(1, 2), k.transpose(1, 2))  # as they lie in memory
        return q.transpose(1, 2), k.transpose(1, 2)

    def objective(logits: Any, labels: Any, vocab_size: int, **_: Any) -> Any:
        return model.objective(logits.view(-1, vocab_size), pad(labels[:, 1:], (0, 1), value=-100).view(-1))

    def feed_forward(mlp: Any, x: Any) -> Any:
        return mlp.down_proj(model.gated(mlp.gate_proj(x), mlp.up_proj(x)))

    model.loss_function = objective
    for layer in model.model.layers:
        layer.mlp.forward = MethodType(feed_forward, layer.mlp)
    print(optimize_model(model, store=store), flush=True)
    way, running = Way(model, rotary), set()

    def ask(module: Any, args: tuple[Any, ...]) -> None:
        if "runs the kernel" in explain(module, *args):
            running.add(module)

    placed = [module for module in model.modules() if hasattr(type(module).forward, DISPATCHER)]
    hooks = [module.register_forward_pre_hook(ask) for module in placed]
    _step(way, tokens)
    for hook in hooks:
        hook.remove()
    for module in running if direct else ():
        module.forward = MethodType(getattr(type(module).forward, DISPATCHER).kernel.forward, module)
    return way, Counter(type(module).__name__ for module in running)


def _with_liger(model: Any) -> Way:
    """Has Liger change a model, and not the library for others."""
    from liger_kernel.transformers import apply_liger_kernel_to_qwen3
    from transformers.models.qwen3 import modeling_qwen3

    before = dict(vars(modeling_qwen3))
    apply_liger_kernel_to_qwen3(model=model)
    rotary = vars(modeling_qwen3)["apply_rotary_pos_emb"]
    vars(modeling_qwen3).update(before)
    return Way(model, rotary)


def _step(way: Way, tokens: Any) -> Any:
    """Runs both passes, and returns the loss."""
    from transformers.models.qwen3 import modeling_qwen3

    vars(modeling_qwen3)["apply_rotary_pos_emb"] = way.rotary
    loss = way.model(tokens, labels=tokens, use_cache=False, return_dict=True).loss
    loss.backward()
    return loss.detach()


def _warm(ways: dict[str, Way], tokens: Any, end: float) -> dict[str, Callable[[], Any]]:
    """Returns the step of each way, of those that are begun before the end and compile."""
    steps: dict[str, Callable[[], Any]] = {}
    for name, way in ways.items():
        begun = time.monotonic()
        if begun > end:
            print(f"{name} is left out: no time is left for it.", flush=True)
            continue
        try:
            for _ in range(3):
                _step(way, tokens)
        except Exception as error:
            if "in torch.compile" not in name:
                raise
            print(f"{name} is left out, as it fails: {type(error).__name__}: {error}"[:2000], flush=True)
            continue
        print(f"{name}: the first steps took {time.monotonic() - begun:.0f} s", flush=True)
        steps[name] = lambda way=way: _step(way, tokens)
    return steps


def _peak(model: Any, step: Callable[[], Any]) -> float:
    """GiB that a step takes at most beside the weights, with the gradients."""
    import torch

    model.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def _times(model: Any, steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of one step, for each way and round."""
    import torch

    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times: dict[str, list[float]] = {name: [] for name in steps}
    for name in interleaved(steps, rounds):
        model.zero_grad()
        steps[name]()  # the first call after another way's looks for its compiled code among theirs
        model.zero_grad()
        synchronize()
        begun = time.perf_counter()
        steps[name]()
        synchronize()
        times[name].append((time.perf_counter() - begun) * 1e3)
    return times


def _errors(eager: Way, steps: dict[str, Callable[[], Any]], tokens: Any) -> dict[str, dict[str, float]]:
    """The errors of the loss and of the gradients, for each way."""
    model = eager.model
    model.zero_grad()
    exact = copy.deepcopy(model).double()
    loss = _step(replace(eager, model=exact), tokens)
    errors = {}
    for name, step in steps.items():
        model.zero_grad()
        off = abs(float(step() / loss) - 1)
        pairs = zip(model.parameters(), exact.parameters(), strict=True)
        worst = max(float((p.grad - e.grad).norm() / e.grad.norm()) for p, e in pairs)
        errors[name] = {"loss": off, "gradients": worst}
    return errors
