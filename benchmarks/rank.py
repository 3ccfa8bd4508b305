"""What ``scan --model`` predicts beside what ``optimize_model`` then gains, on models of transformers with random weights.

    python benchmarks/rank.py [--model llama vit] [--classes CLASS ...] [--samples 4] [--search 10] [--out rank.json]
    python benchmarks/rank.py --count [--arch sm_90]

With a GPU: ranks the model, writes markers for the rows that are worth it, has kernels written and judged, places them with
``optimize_model`` at the ranked call, and times a step before and after, interleaved. The prediction for a class is its
headroom beyond its parts; the gain is the step's time before less after, in all and for each class alone. Without a GPU, or
with ``--count``, prints the ranking that bytes and FLOPs predict, and how long counting took.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from judged import outcomes
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, ViTConfig, ViTModel, WhisperConfig, WhisperModel

from pytest_kernelllm import optimize_model, rank
from pytest_kernelllm.beside.ranking.result import Ranking
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.session.session import open_session


def llama() -> tuple[nn.Module, Any]:
    """Llama 3 8B's sizes with 8 layers; one prompt of 2,048 tokens."""
    config = LlamaConfig(
        vocab_size=128256,
        intermediate_size=14336,
        num_key_value_heads=8,
        num_hidden_layers=8,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    return model, {"input_ids": torch.randint(128256, (1, 2048)), "logits_to_keep": 1}


def vit() -> tuple[nn.Module, Any]:
    """ViT-Large at 224 pixels; 32 images."""
    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = ViTModel(config).to(torch.bfloat16).eval()
    return model, (torch.randn(32, 3, 224, 224, dtype=torch.bfloat16),)


def whisper() -> tuple[nn.Module, Any]:
    """Whisper small; 8 times 30 s of sound, 64 tokens each."""
    config = WhisperConfig(
        d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    )  # fmt: skip
    model = WhisperModel(config).to(torch.bfloat16).eval()
    sound = torch.randn(8, 80, 3000, dtype=torch.bfloat16)
    return model, {"input_features": sound, "decoder_input_ids": torch.randint(51865, (8, 64))}


MODELS = {"llama": llama, "vit": vit, "whisper": whisper}


def main() -> int:
    options = _options()
    count = options.count or not torch.cuda.is_available()
    results = []
    for name in options.model:
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder)
            (project / ".kernelllm").mkdir()
            begun = time.perf_counter()
            ranking = rank(MODELS[name], store=project / ".kernelllm", arch=options.arch, count=count)
            print(
                f"\n{name}: {MODELS[name].__doc__} Ranked in {time.perf_counter() - begun:.1f} s.\n{ranking}"
            )
            results.append({"model": name, "ranking": ranking.to_json()})
            if not count:
                results[-1]["gains"] = _gains(MODELS[name], ranking, project, options)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--model", nargs="+", default=["llama", "vit"], choices=sorted(MODELS))
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--generator", default="inductor")
    parser.add_argument("--classes", nargs="+", metavar="CLASS", help="have kernels written for these alone")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--search", type=float, default=10.0, metavar="SECONDS", help="a target")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", metavar="FILE", help="write the rankings and every time as JSON")
    return parser.parse_args()


def _gains(
    factory: Callable[[], tuple[nn.Module, Any]], ranking: Ranking, project: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Has kernels judged for the rows that are worth it, places them, and prints predictions beside gains."""
    ranking.write_markers(project / "markers.py")
    settings = Settings(generator=options.generator, samples=options.samples, search=options.search)
    with open_session(project, settings) as session:
        named = options.classes
        targets = scan([project], project).targets
        outcomes(session, [target for target in targets if named is None or target.name in named])
    with torch.device("cuda"):
        model, example = factory()
    model = model.cuda()

    def step() -> Any:
        with torch.no_grad():
            return model(**example) if isinstance(example, dict) else model(*example)

    classes = [row.cls.rpartition(".")[2] for row in ranking.worth if row.marker]
    ways = {
        "all": lambda cls: True,
        **{name: (lambda cls, name=name: cls == name) for name in dict.fromkeys(classes)},
    }
    found = {}
    report = optimize_model(model, store=project / ".kernelllm", example=step)
    report.restore()
    print(report)
    print(f"{'placed':<28}{'predicted ms':>14}{'gained ms':>12}{'middle half':>22}{'step ms':>10}")
    for name, chosen in ways.items():
        placed = [swap for swap in report._swaps if chosen(swap.before.__qualname__)]
        if not placed:
            continue
        rows = [row for row in ranking.modules if chosen(row.cls.rpartition(".")[2])]
        replaced = {swap.before.__qualname__ for swap in placed}
        predicted = sum(row.own_headroom_ms for row in rows if row.cls.rpartition(".")[2] in replaced)
        before, after = _times(step, placed, options.rounds)
        gained = sorted(b - a for b, a in zip(before, after, strict=True))
        quarter = len(gained) // 4
        found[name] = {"predicted": predicted, "before": before, "after": after, "placed": len(placed)}
        middle = f"[{gained[quarter]:.3f}, {gained[-1 - quarter]:.3f}]"
        shown = f"{name} ({len(placed)} modules)"
        print(
            f"{shown:<28}{predicted:>14.3f}{statistics.median(gained):>12.3f}{middle:>22}{statistics.median(before):>10.3f}"
        )
    return found


def _times(step: Callable[[], Any], placed: list[Any], rounds: int) -> tuple[list[float], list[float]]:
    """ms of a step without and with kernels, by rounds that run both in random order."""
    shuffle = random.Random(0)
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 3):
        for kernels in shuffle.sample([False, True], 2):
            for swap in placed:
                swap.module.__class__ = swap.after if kernels else swap.before
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            if number >= 3:  # the first ones compile
                times[kernels].append((time.perf_counter() - begun) * 1e3)
    for swap in placed:
        swap.module.__class__ = swap.before
    return times[False], times[True]


if __name__ == "__main__":
    raise SystemExit(main())
