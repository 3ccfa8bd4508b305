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
import json
import sys
import tempfile
from pathlib import Path

import torch
from interleaved import STUDENT, where
from train_blocks import NAMES, WAYS, compare_blocks
from train_llama import train_llama

from pytest_kernelllm.core.applies import interpreting


def main() -> int:
    options = _options()
    if not torch.cuda.is_available() and not interpreting():
        print("benchmarks/training.py needs a CUDA GPU, and torch finds none.", file=sys.stderr)
        return 2
    device = "cpu" if interpreting() else "cuda"
    print(
        f"{where(device)}, torch {torch.__version__}, {options.dtype}, batch {options.batch}, {options.seq} tokens"
    )
    with tempfile.TemporaryDirectory() as folder:
        run = train_llama if options.llama else compare_blocks
        result = run(Path(folder), options, device)
    if options.out:
        known = {"where": where(device), "torch": torch.__version__, **vars(options), **result}
        Path(options.out).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
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


if __name__ == "__main__":
    sys.exit(main())
