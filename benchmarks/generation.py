"""Tokens a second of a local model of Llama-3.1-8B's shape with random weights: ours beside transformers' own paths.

    python benchmarks/generation.py [--samples 20] [--new 256] [--prompt 1100] [--layers 32] [--out FILE.json]

One run measures, with the same weights and the same prompt: one sample at a time with ``generate`` (as KernelLLM's own script
does), ``generate(num_return_sequences=k)``, and our decoder as a CUDA graph, with its parts switched one by one: attention
by PyTorch with a mask in place of the split one, no graph, ``torch.compile`` of norms and MLPs, and the substitutions of
``fuse.py`` one after the other. Then the kernels of a step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm.models.local import attention, fuse
from pytest_kernelllm.models.local.decode import DecodeJob, Decoder
from pytest_kernelllm.models.local.draw import uniforms
from pytest_kernelllm.models.protocol import Sampling


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

    def jobs(self, count: int) -> list[DecodeJob]:
        """Samples of the one prompt."""
        return [DecodeJob(self.prompt, uniforms(0, "prompt", i, self.new)) for i in range(count)]

    def decoder(self, rows: int, *, graph: bool = True) -> Decoder:
        """A fresh one."""
        self.model.set_attn_implementation(attention.register())
        length = len(self.prompt) + self.new
        return Decoder(
            self.model, self.sampling, frozenset(), rows=rows, length=length, graph=graph, behind=graph
        )

    def ours(self, name: str, *, graph: bool = True, jobs: int = 0, rows: int = 0) -> None:
        """The decoder, from a cold start: memory, capture and prefill are in the time."""
        requested = self.jobs(jobs or self.samples)
        first: list[float] = []

        def work() -> int:
            start = time.perf_counter()
            tokens = 0
            for written in self.decoder(rows or len(requested), graph=graph).run(
                requested, lambda tokens: None
            ):
                first or first.append(time.perf_counter() - start)
                tokens += written.spent if written.finish else 0
            return tokens

        seconds, tokens = timed(work)
        self.report(name, seconds, tokens, first_chunk_s=round(first[0], 2))

    def profile(self) -> None:
        """µs a step of each kernel, over 20 replayed steps with all rows at the end of their texts."""
        decoder = self.decoder(self.samples)
        run = decoder.run(self.jobs(self.samples), lambda tokens: None)
        with torch.inference_mode():
            next(run)
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
                for _ in range(20):
                    decoder._advance()
                torch.cuda.synchronize()
        run.close()
        kernels = sorted(profiler.key_averages(), key=lambda each: -each.self_device_time_total)
        for kernel in kernels[:30]:
            row = {"kernel": kernel.key[:90], "us_per_step": round(kernel.self_device_time_total / 20, 1)}
            self.rows.append(row | {"launches_per_step": kernel.count / 20})
            print(
                f"  {row['kernel']:90} {row['us_per_step']:>8,.1f} µs  {kernel.count / 20:6.1f} launches",
                flush=True,
            )
        total = sum(kernel.self_device_time_total for kernel in kernels) / 20
        launches = sum(kernel.count for kernel in kernels) / 20
        print(f"  {'all':90} {total:>8,.1f} µs  {launches:6.1f} launches", flush=True)


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
    bench.ours(f"ours, layers as they are, k={k}, first run (Triton compiles)")
    bench.ours(f"ours, layers as they are, k={k}")
    small = [
        m
        for layer in bench.model.model.layers
        for m in (layer.mlp, layer.input_layernorm, layer.post_attention_layernorm)
    ]
    for module in small:
        module.compile(dynamic=False)
    bench.ours(f"ours, norms and MLPs compiled, k={k}, first run")
    bench.ours(f"ours, norms and MLPs compiled, k={k}")
    for module in small:
        module._compiled_call_impl = None
    fuse.replace_norms(bench.model)
    bench.ours(f"ours, norms replaced, k={k}")
    fuse.rotate_in_one(bench.model)
    bench.ours(f"ours, rotations in one kernel as well, first run, k={k}")
    bench.ours(f"ours, k={k}")
    bench.ours("ours, one sample", jobs=1)
    bench.ours(f"ours, {3 * k} samples on {k} rows", jobs=3 * k, rows=k)
    bench.ours(f"ours without a CUDA graph, k={k}", graph=False)
    split = attention._split
    attention._split = attention._masked
    bench.ours(f"ours, attention with a mask, k={k}")
    attention._split = split
    bench.profile()
    if options.out:
        options.out.write_text(
            json.dumps({"options": vars(options) | {"out": ""}, "rows": bench.rows}, indent=1)
        )


if __name__ == "__main__":
    main()
