"""Tokens a second of a local model of Llama-3.1-8B's shape with random weights: ours beside transformers' own paths.

    python benchmarks/generation.py [--samples 20] [--new 256] [--prompt 1100] [--layers 32] [--out FILE.json]

One run measures, with the same weights and the same prompt: one sample at a time with ``generate`` (as KernelLLM's own script
does), ``generate(num_return_sequences=k)``, and our decoder as a CUDA graph, with its parts switched one by one: attention
by PyTorch with a mask in place of the split one, no graph, regional ``torch.compile``. Then where a step's time goes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm.generate.model.local import attention
from pytest_kernelllm.generate.model.local.decode import Decoder, Job
from pytest_kernelllm.generate.model.local.draw import draw, uniforms
from pytest_kernelllm.generate.model.protocol import Sampling


def build(layers: int, device: str) -> Any:
    """Random weights in Llama-3.1-8B's shape, bfloat16, made on the device."""
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500_000.0,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = None
    return model


def timed(work: Callable[[], int]) -> tuple[float, int]:
    """Seconds, and the tokens that came of them."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    tokens = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, tokens


class Bench:
    """One model, one prompt; each row of the report is one way to write."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.model = build(options.layers, "cuda")
        self.prompt = tuple(torch.randint(10, 100_000, (options.prompt,)).tolist())
        self.samples, self.new = options.samples, options.new
        self.sampling = Sampling(max_new_tokens=options.new)
        self.rows: list[dict[str, Any]] = []

    def report(self, name: str, seconds: float, tokens: int, **more: Any) -> None:
        row = {"way": name, "seconds": round(seconds, 2), "tokens_per_s": round(tokens / seconds, 1), **more}
        self.rows.append(row)
        print(f"{name:58} {row['tokens_per_s']:>9,.1f} tokens/s  {seconds:6.2f} s  {more or ''}", flush=True)

    def plain(self, name: str, count: int, new: int) -> None:
        """transformers' ``generate``."""
        self.model.set_attn_implementation("sdpa")
        ids = torch.tensor([self.prompt], device="cuda")

        def work() -> int:
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_p=0.97,
                top_k=0,
                max_new_tokens=new,
                num_return_sequences=count,
                pad_token_id=0,
            )
            return (out.shape[1] - len(self.prompt)) * count

        self.report(name, *timed(work))

    def ours(self, name: str, *, graph: bool = True, jobs: int = 0, rows: int = 0) -> None:
        """The decoder, from a cold start: memory, capture and prefill are in the time."""
        self.model.set_attn_implementation(attention.register())
        count = jobs or self.samples
        wanted = [Job(self.prompt, uniforms(0, "prompt", i, self.new)) for i in range(count)]
        first: list[float] = []

        def work() -> int:
            start = time.perf_counter()
            decoder = Decoder(
                self.model,
                self.sampling,
                frozenset(),
                rows=rows or count,
                length=len(self.prompt) + self.new,
                graph=graph,
                behind=graph,
            )
            tokens = 0
            for written in decoder.run(wanted, lambda tokens: None):
                first or first.append(time.perf_counter() - start)
                tokens += written.spent if written.finish else 0
            return tokens

        seconds, tokens = timed(work)
        self.report(name, seconds, tokens, first_chunk_s=round(first[0], 2))

    def parts(self) -> None:
        """µs of the parts of one step, each alone as a CUDA graph."""
        rows, length, config = self.samples, len(self.prompt) + self.new, self.model.config
        layer = self.model.model.layers[0]
        hidden = torch.randn(rows, 1, config.hidden_size, device="cuda", dtype=torch.bfloat16)
        logits = torch.randn(rows, config.vocab_size, device="cuda", dtype=torch.bfloat16)
        numbers = torch.rand(rows, device="cuda")
        width = config.hidden_size // config.num_attention_heads
        query = torch.randn(rows, 8, 4, width, device="cuda", dtype=torch.bfloat16)
        keys = torch.randn(rows, 8, -(-length // 64) * 64, width, device="cuda", dtype=torch.bfloat16)
        lengths = torch.full((rows,), length, device="cuda")
        qkv, mlp = layer.self_attn, layer.mlp
        n = config.num_hidden_layers
        parts = {
            f"projections of attention x{n}": lambda: [
                qkv.q_proj(hidden),
                qkv.k_proj(hidden),
                qkv.v_proj(hidden),
                qkv.o_proj(hidden),
            ],
            f"MLP x{n}": lambda: mlp(hidden),
            f"norms x{n}": lambda: [layer.input_layernorm(hidden), layer.post_attention_layernorm(hidden)],
            f"attention, split x{n}": lambda: attention._split(query, keys, keys, lengths, width**-0.5),
            f"attention, masked x{n}": lambda: attention._masked(query, keys, keys, lengths, width**-0.5),
            "head": lambda: self.model.lm_head(hidden),
            "sampling": lambda: draw(logits, numbers, self.sampling),
        }
        for name, part in parts.items():
            each = graphed(part)
            self.report_part(name, each * (n if f"x{n}" in name else 1))

    def report_part(self, name: str, microseconds: float) -> None:
        self.rows.append({"part": name, "us_per_step": round(microseconds, 1)})
        print(f"  {name:56} {microseconds:>9,.1f} µs a step", flush=True)


def graphed(part: Callable[[], object]) -> float:
    """µs of a piece of work, replayed 50 times as a CUDA graph."""
    with torch.inference_mode():
        for _ in range(3):
            part()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            part()
        times = []
        for _ in range(5):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(10):
                graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 100.0)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=1100)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(options)
    k = options.samples
    bench.plain("warm-up, not counted", 1, 8)
    bench.plain("generate, one sample at a time (KernelLLM's script)", 1, min(options.new, 64))
    bench.plain(f"generate(num_return_sequences={k})", k, options.new)
    bench.ours(f"ours, k={k}, first run (Triton compiles)")
    bench.ours(f"ours, k={k}")
    bench.ours("ours, one sample", jobs=1)
    bench.ours(f"ours, {3 * k} samples on {k} rows", jobs=3 * k, rows=k)
    bench.ours(f"ours without a CUDA graph, k={k}", graph=False)
    split = attention._split
    attention._split = attention._masked
    bench.ours(f"ours, attention with a mask, k={k}")
    attention._split = split
    for layer in bench.model.model.layers:
        layer.compile(dynamic=False)
    bench.ours(f"ours, layers compiled, first run, k={k}")
    bench.ours(f"ours, layers compiled, k={k}")
    for layer in bench.model.model.layers:
        layer._compiled_call_impl = None
    bench.parts()
    if options.out:
        options.out.write_text(
            json.dumps({"options": vars(options) | {"out": ""}, "rows": bench.rows}, indent=1)
        )


if __name__ == "__main__":
    main()
