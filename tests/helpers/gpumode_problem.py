"""A problem in GPU MODE's form, with an honest submission."""

from pathlib import Path

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
lang: py
config: {main: eval.py}
tests:
  - {rows: 3, width: 100, seed: 7}
  - {rows: 2, width: 33, seed: 11}
benchmarks:
  - {rows: 8192, width: 8192, seed: 3}
"""

UTILS = """
import os

import torch


class Deterministic:
    def __enter__(self):
        os.environ["SOME_SETTING"] = "1"

    def __exit__(self, *exc):
        pass


def make_match_reference(reference):
    return lambda data, output: (torch.allclose(reference(data), output), "")
"""

REFERENCE = """
import torch
from task import input_t, output_t
from utils import Deterministic, make_match_reference


def ref_kernel(data: input_t) -> output_t:
    with Deterministic():
        x, weights, y = data
        y[...] = x * weights["scale"] + weights["shift"]
        return y


def generate_input(rows: int, width: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(rows, width, device="cuda", generator=gen)
    scale = torch.randn(width, device="cuda", generator=gen)
    return x, {"scale": scale, "shift": 3}, torch.empty(rows, width, device="cuda")


check_implementation = make_match_reference(ref_kernel)
"""

SUBMISSION = """
#!POPCORN leaderboard scaling
import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def scale_kernel(x_ptr, scale_ptr, y_ptr, shift, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask)
    tl.store(y_ptr + row + columns, x * tl.load(scale_ptr + columns, mask) + shift, mask)


def _custom_kernel(data: input_t) -> output_t:
    x, weights, y = data
    rows, width = x.shape
    scale_kernel[(rows,)](x, weights["scale"], y, weights["shift"], width, BLOCK=triton.next_power_of_2(width))
    return y


custom_kernel = torch.compile(_custom_kernel, mode="reduce-overhead")
"""


def lay_out(folder: Path) -> Path:
    """Writes the problem into a folder, beside what it shares with others; returns its own."""
    problem = folder / "scaling"
    problem.mkdir()
    (folder / "utils.py").write_text(UTILS)
    (problem / "task.yml").write_text(TASK)
    (problem / "task.py").write_text("from typing import TypeVar\n\ninput_t = output_t = TypeVar('T')\n")
    (problem / "reference.py").write_text(REFERENCE)
    (problem / "submission.py").write_text(SUBMISSION)
    return problem
