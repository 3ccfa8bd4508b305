"""Runs every function of ``generate/render/device`` in Triton's interpreter; saves the results for the test."""

import sys

import torch
import triton
import triton.language as tl

from kernelllm_judge.render.device import elementwise
from kernelllm_judge.render.device import reductions as device


@triton.jit
def unary(x_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, f(tl.load(x_ptr + offsets)))


@triton.jit
def binary(x_ptr, y_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, f(tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)))


@triton.jit
def along(x_ptr, out_ptr, f: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, ROWS)
    x = tl.load(x_ptr + rows[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr + rows, f(x, 1))


@triton.jit
def indexed(x_ptr, value_ptr, index_ptr, f: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows[:, None] * N + columns)
    value, index = f(x, tl.broadcast_to(columns, [ROWS, N]), 1)
    tl.store(value_ptr + rows, value)
    tl.store(index_ptr + rows, index)


@triton.jit
def pairs(x_ptr, y_ptr, value_ptr, index_ptr, f: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    a = tl.load(x_ptr + offsets)
    b = tl.load(y_ptr + offsets)
    value, index = f(a, offsets, b, offsets + 1)
    tl.store(value_ptr + offsets, value)
    tl.store(index_ptr + offsets, index - offsets)


@triton.jit
def ordered(
    x_ptr,
    value_ptr,
    index_ptr,
    DESCENDING: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
    COUNT: tl.constexpr,
):
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    index = tl.broadcast_to(columns.to(tl.int16), [ROWS, N])
    value, index = device.sort_with_index(x, index, COUNT, 1, descending=DESCENDING)
    tl.store(value_ptr + rows * COUNT + columns, value, columns < COUNT)
    tl.store(index_ptr + rows * COUNT + columns, index, columns < COUNT)


@triton.jit
def welford(x_ptr, mean_ptr, m2_ptr, total_ptr, N: tl.constexpr, STEPS: tl.constexpr, JOINED: tl.constexpr):
    empty = tl.zeros([1, N], tl.float32)
    mean, m2, weight = empty, empty, empty
    for step in range(STEPS):
        x = tl.load(x_ptr + step * N + tl.arange(0, N)[None, :])
        if JOINED:  # each value is a part; the first one is joined to an empty one
            mean, m2, weight = device.welford_joined(mean, m2, weight, x, empty, empty + 1.0)
        else:
            mean, m2, weight = device.welford_next(x, mean, m2, weight)
    if JOINED:
        mean, m2, weight = device.welford_joined(mean, m2, weight, empty, empty, empty)
    mean, m2, weight = device.welford_total(mean, m2, weight, 1)
    first = tl.arange(0, 1)
    tl.store(mean_ptr + first, mean)
    tl.store(m2_ptr + first, m2)
    tl.store(total_ptr + first, weight)


@triton.jit
def online(x_ptr, largest_ptr, total_ptr, N: tl.constexpr, STEPS: tl.constexpr, JOINED: tl.constexpr):
    largest = tl.full([1, N], float("-inf"), tl.float32)
    total = tl.zeros([1, N], tl.float32)
    for step in range(STEPS):
        x = tl.load(x_ptr + step * N + tl.arange(0, N)[None, :])
        if JOINED:
            seen = tl.where(x == float("-inf"), 0.0, 1.0)
            largest, total = device.online_softmax_joined(largest, total, x, seen, False)
        else:
            largest, total = device.online_softmax_next(largest, total, x, False)
    largest, total = device.online_softmax_total(largest, total, 1, False)
    first = tl.arange(0, 1)
    tl.store(largest_ptr + first, largest)
    tl.store(total_ptr + first, total)


def main(given, taken):
    """``given`` holds by key ``(kind, function)`` the tensors to start from; results go to ``taken``."""
    results = {}
    for (kind, name), (inputs, outputs) in torch.load(given).items():
        function = getattr(device, name, None) or getattr(elementwise, name, None)
        out = [torch.empty_like(o) for o in outputs]
        if kind in ("unary", "binary", "pairs"):
            globals()[kind][(1,)](*inputs, *out, f=function, N=inputs[0].numel())
        elif kind in ("along", "indexed"):
            globals()[kind][(1,)](*inputs, *out, f=function, ROWS=inputs[0].shape[0], N=inputs[0].shape[1])
        elif kind in ("ascending", "descending"):
            (rows, columns), count = inputs[0].shape, out[0].shape[1]
            ordered[(1,)](*inputs, *out, DESCENDING=kind == "descending", ROWS=rows, N=columns, COUNT=count)
        else:
            (steps, columns), joined = inputs[0].shape, name.endswith("_joined")
            globals()[kind][(1,)](*inputs, *out, N=columns, STEPS=steps, JOINED=joined)
        results[kind, name] = out
    torch.save(results, taken)


main(*sys.argv[1:])
