"""Forward and backward passes of blocks in training: eager, ``torch.compile``, our kernels and Liger-Kernel's, in one run.

    python benchmarks/training.py [--batch 4] [--seq 2048] [--samples 5] [--rounds 30] [--out training.json]
    python benchmarks/training.py --llama [--steps 200] [--batch 4] [--seq 2048] [--hidden 2048] [--layers 8] [--out llama.json]

The blocks are those of ``examples/training_blocks``, in bfloat16. Their kernels come from the Inductor generator and are judged
here; of the accepted ones, the fastest in five rounds of its own is compared. Every round calls each way once in random order.
Printed are the median times, and the rounds' geometric mean of eager's time over each way's with Student's 95 % interval. Liger
is left out where it is not installed (``pip install liger-kernel``). Note that its cross-entropy computes the gradient in its
forward pass, and overwrites the logits with it: every call gets a copy of its inputs, made outside the clock.

``--llama`` trains a small Llama with random weights: eager twice with equal seeds, eager with the rows of each batch in
another order (the same sum, rounded otherwise), ``torch.compile``, and eager with verified kernels by ``optimize_model``. It prints
how far the losses are from eager's, beside how far eager's are from its own, and tokens per second after the first tenth.

Needs a GPU. With ``KERNELLLM_INTERPRET=1 TRITON_INTERPRET=1`` and tiny sizes it runs without one, and measures nothing.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from optimize import STUDENT, ratio
from torch import nn

from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.optimize.environment import interpreting
from pytest_kernelllm.runtime import DISPATCHER, explain
from pytest_kernelllm.session.session import Session, open_session
from pytest_kernelllm.verify.in_memory import JudgedKernel, adopt

BLOCKS = Path(__file__).parents[1] / "examples" / "training_blocks" / "training_blocks"
NAMES = ("RMSNorm", "LayerNorm", "SwiGLU", "GEGLU", "RotaryEmbedding", "SoftmaxCrossEntropy")
WAYS = ("eager", "torch.compile", "ours", "liger")
Way = Callable[..., Any]

MARKED = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from pytest_kernelllm import triton_candidate


def hidden_states(batch={batch}, seq={seq}):
    return torch.randn(batch, seq, {hidden})


def config():
    return (LlamaConfig(hidden_size={hidden}, intermediate_size={intermediate}),)


COMMON = {{
    "inputs": hidden_states,
    "dtypes": ("{dtype}",),
    "dims": {{"batch": (1, {batch}), "seq": (1, {seq})}},
    "backward": True,
    "training": True,
}}
triton_candidate(LlamaRMSNorm, init=({hidden},), **COMMON)
triton_candidate(LlamaMLP, init=config, **COMMON)
"""


def main() -> int:
    options = _options()
    if not torch.cuda.is_available() and not interpreting():
        print("benchmarks/training.py needs a CUDA GPU, and torch finds none.", file=sys.stderr)
        return 2
    device = "cpu" if interpreting() else "cuda"
    where = (
        "Triton's interpreter: no measure of anything" if device == "cpu" else torch.cuda.get_device_name()
    )
    print(f"{where}, torch {torch.__version__}, {options.dtype}, batch {options.batch}, {options.seq} tokens")
    with tempfile.TemporaryDirectory() as folder:
        run = _llama if options.llama else _blocks
        result = run(Path(folder), options, device)
    if options.out:
        Path(options.out).write_text(
            json.dumps({"where": where, "torch": torch.__version__, **vars(options), **result}, indent=1)
            + "\n"
        )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--llama", action="store_true", help="train a small Llama instead")
    for name, value in {
        "batch": 4,
        "seq": 2048,
        "width": 8192,
        "vocabulary": 32000,
        "samples": 5,
        "steps": 200,
        "hidden": 2048,
        "intermediate": 5632,
        "layers": 8,
        "heads": 16,
        "kv-heads": 4,
        "seed": 0,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default: {value}")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"), help="of the Llama")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate, default: 3e-4")
    parser.add_argument("--rounds", type=int, default=30, choices=sorted(STUDENT), help="default: 30")
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES, help="these blocks")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, help="these ways; eager always runs")
    parser.add_argument("--out", metavar="FILE", help="write every figure as JSON")
    options = parser.parse_args()
    options.ways = ["eager", *(way for way in options.ways if way != "eager")]
    return options


# --------------------------------------------------------------------------- kernels


def _accepted(session: Session, target: Target) -> list[tuple[str, JudgedKernel]]:
    """Has kernels for a target written and judged; returns the accepted ones with their notes."""
    for candidate in session.candidate_ids:
        session.expect(target, candidate)
    found = []
    for candidate in session.candidate_ids:
        outcome = session.outcome(target, candidate)
        print(f"  {target.name}, {candidate}: {outcome.why or 'accepted'}", flush=True)
        if outcome.verdict is not None and outcome.verdict.accepted and outcome.candidate is not None:
            kernel = JudgedKernel(outcome.verdict, outcome.candidate.source, nn.Module)
            found.append((outcome.candidate.note, kernel))
    return found


# --------------------------------------------------------------------------- blocks


def _blocks(folder: Path, options: argparse.Namespace, device: str) -> dict[str, Any]:
    shutil.copytree(BLOCKS, folder / BLOCKS.name)
    sys.path.insert(0, str(folder))
    package = importlib.import_module(BLOCKS.name)
    files = sorted((folder / BLOCKS.name).glob("*.py"))
    targets = {target.name: target for file in files for target in scan_file(file, folder).targets}
    kernels: dict[str, list[tuple[str, JudgedKernel]]] = {}
    if "ours" in options.ways:
        with open_session(folder, Settings(generator="inductor", samples=options.samples)) as session:
            kernels = {name: _accepted(session, targets[name]) for name in options.only}
    print(
        f"\n{'':<34}{'forward µs':>11}{'backward µs':>12}{'peak MiB':>10}  {'eager / way, both passes':<26}{'error':>8}"
    )
    result = {}
    for name in options.only:
        result[name] = _block(package, name, kernels.get(name, []), options, device)
    return {"blocks": result}


def _block(
    package: Any, name: str, kernels: list[tuple[str, JudgedKernel]], options: argparse.Namespace, device: str
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
    if kernels:
        ways["ours"] = _fastest(module, values, kernels, options, device)
    eager = _results(module, values)
    errors, failed = {}, {}
    for way, call in list(ways.items()):
        try:
            errors[way] = _error(_results(call, values), eager)
        except Exception as error:
            if way != "liger":  # not ours to mend, and no reason to lose the other figures
                raise
            failed[way] = f"{type(error).__name__}: {error}"
            del ways[way]
    times = _times(ways, values, options.rounds, device)
    peaks = {way: _peak(call, values, device) for way, call in ways.items()}
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
    kernels: list[tuple[str, JudgedKernel]],
    options: argparse.Namespace,
    device: str,
) -> nn.Module:
    """Returns the block with the accepted kernel that is fastest over both passes, in rounds of their own."""
    ways: dict[str, Way] = {}
    for note, kernel in kernels:
        adopted = copy.deepcopy(module)
        adopt(adopted, JudgedKernel(kernel.verdict, kernel.source, type(module)))
        if "runs the kernel" not in (said := explain(adopted, *values)):
            raise RuntimeError(said)
        ways[note] = adopted
    times = _times(ways, values, 5, device)
    best = min(times, key=lambda note: statistics.median(map(sum, times[note])))
    print(f"{type(module).__name__}: of {len(ways)} accepted, {best!r}")
    chosen = ways[best]
    assert isinstance(chosen, nn.Module)
    return chosen


# --------------------------------------------------------------------------- passes


class _Pass:
    """One call in training: fresh leaves, the outputs, and random gradients for them."""

    def __init__(self, way: Way, values: Sequence[torch.Tensor]) -> None:
        self.way = way
        self.leaves = [v.clone().requires_grad_() if v.is_floating_point() else v for v in values]
        # Not the leaves themselves, which a function may not change in place.
        self.given = [v.clone() for v in self.leaves]
        for parameter in way.parameters() if isinstance(way, nn.Module) else ():
            parameter.grad = None

    def forward(self) -> None:
        out = self.way(*self.given)
        self.outputs: list[torch.Tensor] = list(out) if isinstance(out, tuple) else [out]

    def draw(self) -> None:
        generator = torch.Generator(self.outputs[0].device).manual_seed(1)
        self.into = [
            torch.ones_like(o)
            if o.dim() == 0
            else torch.randn(o.shape, generator=generator, device=o.device, dtype=torch.float32).to(o.dtype)
            for o in self.outputs
        ]

    def backward(self) -> None:
        torch.autograd.backward(self.outputs, self.into)

    def gradients(self) -> list[torch.Tensor]:
        parameters = self.way.parameters() if isinstance(self.way, nn.Module) else ()
        return [t.grad for t in (*self.leaves, *parameters) if t.grad is not None]


def _results(way: Way, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns outputs and gradients."""
    both = _Pass(way, values)
    both.forward()
    outputs = [o.detach().clone() for o in both.outputs]
    both.draw()
    both.backward()
    return [*outputs, *(gradient.clone() for gradient in both.gradients())]


def _error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Returns the largest difference from eager's outputs and gradients, as a share of the largest value of each."""
    if len(found) != len(expected):
        raise RuntimeError(f"{len(found)} outputs and gradients where eager has {len(expected)}")
    pairs = ((f.float(), e.float()) for f, e in zip(found, expected, strict=True))
    # Not Python's max, which may drop a NaN.
    return float(torch.stack([(f - e).abs().max() / e.abs().max() for f, e in pairs]).max())


def _times(
    ways: dict[str, Way], values: Sequence[torch.Tensor], rounds: int, device: str
) -> dict[str, list[tuple[float, float]]]:
    """Returns µs of the forward and the backward pass, for each way and round."""
    order = list(ways)
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    shuffle = random.Random(0)
    warming = 3 if device == "cuda" else 0
    for number in range(warming + rounds):
        shuffle.shuffle(order)
        for way in order:
            both = _Pass(ways[way], values)
            forward = _timed(both.forward, device)
            both.draw()
            backward = _timed(both.backward, device)
            if number >= warming:
                times[way].append((forward, backward))
    return times


def _timed(call: Callable[[], None], device: str) -> float:
    """Returns the µs of a call on the GPU."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6
    torch.cuda.synchronize()
    # Work before the first event keeps the GPU busy while Python launches, so that no launch is waited for.
    torch.cuda._sleep(2_000_000)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    call()
    events[1].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]) * 1e3


def _peak(way: Way, values: Sequence[torch.Tensor], device: str) -> int:
    """Returns the most bytes allocated during both passes, without inputs and the gradients of outputs."""
    if device == "cpu":
        return 0
    both = _Pass(way, values)
    both.forward()  # the sizes of outputs are known only now
    both.draw()
    into = both.into
    both = _Pass(way, values)
    both.into = into
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    both.forward()
    both.backward()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - held)


# --------------------------------------------------------------------------- Llama


def _llama(folder: Path, options: argparse.Namespace, device: str) -> dict[str, Any]:
    (folder / "marked.py").write_text(MARKED.format(**vars(options)))
    with open_session(folder, Settings(generator="inductor", samples=options.samples)) as session:
        for target in scan_file(folder / "marked.py", folder).targets:
            _accepted(session, target)
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
        apart = [abs(a - b) for a, b in zip(losses, eager, strict=True)]
        shown = f"{losses[0]:>11.4f}{losses[-1]:>11.4f}{statistics.mean(apart):>11.2e}{max(apart):>11.2e}"
        print(f"{name:<26}{shown}{speed:>12,.0f}{speed / runs['eager'][1]:>8.3f}")
    for name in ("eager again", "eager, rows turned round", "torch.compile"):
        if "ours" in runs and name in runs and (apart := _apart(runs[name][0], eager)):
            times = _apart(runs["ours"][0], eager) / apart
            print(f"mean |Δ| of ours from eager: {times:.2f} times that of {name}")
    return {"runs": {name: {"losses": losses, "tokens/s": speed} for name, (losses, speed) in runs.items()}}


def _apart(a: list[float], b: list[float]) -> float:
    return statistics.mean(abs(x - y) for x, y in zip(a, b, strict=True))


def _model(options: argparse.Namespace, device: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(options.seed)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        num_hidden_layers=options.layers,
    )
    with torch.device(device):
        return LlamaForCausalLM(config).to(getattr(torch, options.dtype)).train()


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
            _synchronize(device)
            start = time.perf_counter()
        loss = way(batch, labels=batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    _synchronize(device)
    seconds = time.perf_counter() - start
    return [float(loss) for loss in losses], (len(batches) - warm) * batches[0].numel() / seconds


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
