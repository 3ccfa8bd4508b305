"""Tokens a second of a local model of Llama-3.1-8B's shape with random weights: our decoder beside transformers' ``generate``.

One prompt, several samples, the same weights. ``generate`` runs one sample at a time (as KernelLLM's own script does) and with
``num_return_sequences``. Memory, capture and prefill are in every time; Triton's compiling is not. Needs a GPU.

    python -m benchmarks generation [--samples 20] [--new 256] [--prompt 1100] [--layers 8]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.rows import Row, more


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--new", type=int, default=256, help="tokens of each sample")
    parser.add_argument("--prompt", type=int, default=1100, help="tokens")
    parser.add_argument("--layers", type=int, default=8)


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields our rate beside both ways of ``generate``."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("generation needs a CUDA GPU, and torch finds none.")
    torch.manual_seed(0)
    model, count, new = _model(options.layers), options.samples, options.new
    prompt = tuple(torch.randint(10, 100_000, (options.prompt,)).tolist())
    _generate(model, prompt, 1, 8)
    peers = {
        "generate, one at a time": _rate(lambda: _generate(model, prompt, 1, min(new, 64))),
        f"generate, {count} sequences": _rate(lambda: _generate(model, prompt, count, new)),
    }
    decode = _decoder(model, prompt, new)
    decode(count)
    ours = _rate(lambda: decode(count))
    for peer, theirs in peers.items():
        yield more(f"{count} samples, {options.layers} layers", peer, theirs, ours, "tokens/s")
    single = _rate(lambda: decode(1))
    yield more("one sample", "generate, one at a time", peers["generate, one at a time"], single, "tokens/s")


def _model(layers: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

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
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    return model


def _rate(work: Callable[[], int]) -> float:
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    tokens = work()
    torch.cuda.synchronize()
    return tokens / (time.perf_counter() - begun)


def _generate(model: Any, prompt: tuple[int, ...], count: int, new: int) -> int:
    import torch

    ids = torch.tensor([prompt], device="cuda")
    out = model.generate(
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
    return (out.shape[1] - len(prompt)) * count


def _decoder(model: Any, prompt: tuple[int, ...], new: int) -> Callable[[int], int]:
    """Returns what decodes that many samples as the local model does, and counts their tokens."""
    from pytest_kernelllm.models.local import attention, norms
    from pytest_kernelllm.models.local.decode import DecodeJob, Decoder
    from pytest_kernelllm.models.local.draw import uniforms
    from pytest_kernelllm.models.protocol import Sampling

    model.set_attn_implementation(attention.register())
    norms.replace_norms(model)

    def decode(count: int) -> int:
        jobs = [DecodeJob(prompt, uniforms(0, "prompt", index, new)) for index in range(count)]
        sampling = Sampling(max_new_tokens=new)
        decoder = Decoder(
            model, sampling, frozenset(), rows=count, length=len(prompt) + new, graph=True, behind=True
        )
        return sum(w.spent for w in decoder.run(jobs, lambda tokens: None) if w.finish)

    return decode
