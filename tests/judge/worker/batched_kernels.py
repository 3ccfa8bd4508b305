"""Runs kernels with their programs at once and one by one, and prints what came out. In a process of its own: it patches Triton."""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder

from kernelllm_judge.worker.operations import Operations
from kernelllm_judge.worker.sanitizer.sanitizer import Sanitizer
from kernelllm_judge.worker.warm import prepare_interpreter


@triton.jit
def elementwise(x_ptr, y_ptr, out_ptr, n, bound, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=9.0).to(tl.float32)
    y = tl.load(y_ptr + i % 7)
    z = tl.where(x > bound, tl.exp(x) * y, tl.sigmoid(x) - y / 3)
    tl.store(out_ptr + i, tl.minimum(tl.abs(z), 4.0), mask=i < n)


@triton.jit
def rows_and_columns(x_ptr, out_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + rows[:, None] * 32 + columns[None, :])
    flat = tl.reshape(tl.join(x, x * x), [2 * ROWS * COLUMNS])
    a, b = tl.split(tl.reshape(flat, [ROWS, COLUMNS, 2]))
    c = tl.trans(tl.permute(tl.expand_dims(a, 0), (2, 0, 1)), (1, 2, 0))
    y = tl.reshape(c, [ROWS, COLUMNS]) + b.T.T + tl.flip(a, 1)
    tl.store(out_ptr + columns[:, None] * 16 + rows[None, :], y.T)


@triton.jit
def softmax(x_ptr, out_ptr, n, COLUMNS: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def larger(a, b):
    if a > b:
        return a
    return b


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def reductions(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * M * N + m[:, None] * N + n[None, :])
    y = tl.cumsum(x, 1) + tl.cumprod(x, 0, reverse=True) + tl.associative_scan(x, 0, product)
    y += tl.sum(x, 0)[None, :] + tl.max(x, 1)[:, None] + tl.argmin(x, 1)[:, None] + tl.sum(x)
    y += tl.reduce(x, 1, product, keep_dims=True) + tl.sum(x.to(tl.float16), 0)[None, :] + tl.min(x, 0)
    first, place = tl.max(x, 0, return_indices=True)
    y += (first + place)[None, :] + tl.sort(x, 1) + tl.xor_sum(tl.arange(0, N), 0)
    y += tl.gather(x, (m[:, None] + tl.program_id(0)) % M + tl.zeros([M, N], tl.int32), 0)
    y += tl.histogram(tl.arange(0, M) % N + 0 * tl.program_id(0), N)[None, :]
    y += tl.reshape(tl.cat(tl.arange(0, M // 2), tl.arange(0, M // 2), can_reorder=True), [M, 1])
    tl.store(out_ptr + tl.program_id(0) * M * N + m[:, None] * N + n[None, :], y)


@triton.jit
def branching(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.associative_scan(x, 0, larger), 0))


@triton.jit
def matmul(a_ptr, b_ptr, out_ptr, k, BLOCK: tl.constexpr):
    a_ptrs = tl.make_block_ptr(a_ptr, (32, k), (k, 1), (tl.program_id(0) * BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    b_ptrs = tl.make_block_ptr(b_ptr, (k, 48), (48, 1), (0, tl.program_id(1) * BLOCK), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(0, k, BLOCK):
        a = tl.load(a_ptrs, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_ptrs, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(a, b, total)
        a_ptrs, b_ptrs = tl.advance(a_ptrs, (0, BLOCK)), tl.advance(b_ptrs, (BLOCK, 0))
    start = (tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK)
    out_ptrs = tl.make_block_ptr(out_ptr, (32, 48), (48, 1), start, (BLOCK, BLOCK), (1, 0))
    tl.store(out_ptrs, total, boundary_check=(0, 1))


@triton.jit
def tiled(a_ptr, b_ptr, out_ptr, K: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + (rows % 50)[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] + columns[None, :] * K)  # across memory
        total += tl.dot(a, b, input_precision="tf32x3")
    tl.store(out_ptr + rows[:, None] * 256 + columns[None, :], total)


@triton.jit
def described(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [20, 32], [32, 1], [BLOCK, BLOCK])
    out = tl.make_tensor_descriptor(out_ptr, [20, 32], [32, 1], [BLOCK, BLOCK])
    row = tl.program_id(0) * BLOCK
    out.store([row, tl.program_id(1) * BLOCK], 2 * x.load([row, tl.program_id(1) * BLOCK]))


@triton.jit
def embedded(ids_ptr, x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    row = tl.load(ids_ptr + tl.program_id(0))
    tl.store(out_ptr + tl.program_id(0) * N + i, tl.load(x_ptr + row * N + i))


@triton.jit
def ragged(lengths_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for start in range(0, tl.load(lengths_ptr + row), BLOCK):
        total += tl.sum(tl.load(x_ptr + row * 64 + start + tl.arange(0, BLOCK)), 0)
    while total > 8.0:
        total = total * 0.5
    if row == 0:
        total = -total
    tl.store(out_ptr + row, total)


@triton.jit
def noise(out_ptr, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.randn(seed, i))


@triton.jit
def doubled_in_place(x_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i) * 2)
    tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)


@triton.jit
def added_up(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.atomic_add(out_ptr, tl.sum(x, 0))
    tl.atomic_add(out_ptr + 1 + tl.arange(0, N), x)


@triton.jit
def added_up_twice(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.atomic_add(out_ptr, tl.sum(x, 0))
    tl.atomic_add(out_ptr, tl.max(x, 0))


@triton.jit
def tickets(out_ptr, count_ptr):
    tl.store(out_ptr + tl.atomic_add(count_ptr, 1), tl.program_id(0))


@triton.jit
def handed_on(x_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i + BLOCK, tl.load(x_ptr + i) + 1)


@triton.jit
def same_everywhere(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr) + 1)


@triton.jit
def failing(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))
    if tl.program_id(0) // 6 == 1:
        tl.reshape(i, [3, BLOCK])


@triton.jit
def beyond(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    i = tl.where(tl.program_id(0) == 5, i + 1000, i)
    tl.store(out_ptr + i, x, mask=i >= 0)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


CASES = {
    "elementwise": (elementwise, (8,), [random(500), random(7), torch.empty(500), 500, 0.5, 64]),
    "elementwise in bfloat16": (
        elementwise,
        (8,),
        [random(500, dtype=torch.bfloat16), random(7), torch.empty(500, dtype=torch.bfloat16), 500, 0.5, 64],
    ),
    "rows and columns": (rows_and_columns, (4, 2), [random(16, 32), torch.empty(32, 16), 8, 8]),
    "softmax": (softmax, (13,), [random(13, 50), torch.empty(13, 50), 50, 64]),
    "reductions": (reductions, (6,), [random(6, 8, 16), torch.empty(6, 8, 16), 8, 16]),
    "reductions of a column": (reductions, (6,), [random(6, 8, 2), torch.empty(6, 8, 2), 8, 2]),
    "branching": (branching, (6,), [random(6, 8), torch.empty(6), 8]),
    "matmul": (matmul, (2, 3), [random(32, 40), random(40, 48), torch.empty(32, 48), 40, 16]),
    "tiles": (tiled, (2, 2), [random(50, 256), random(256, 256), torch.empty(256, 256), 256, 128]),
    "descriptors": (described, (2, 2), [random(20, 32), torch.empty(20, 32), 16]),
    "embedded": (embedded, (9,), [torch.arange(9) * 5 % 7, random(7, 16), torch.empty(9, 16), 16]),
    "ragged": (ragged, (12,), [torch.arange(12) % 3 * 16, random(12, 64), torch.empty(12), 16]),
    "noise": (noise, (5,), [torch.empty(5 * 32), 3, 32]),
    "in place": (doubled_in_place, (7,), [random(7 * 16), 16]),
    "added up": (added_up, (40,), [random(40, 16), torch.zeros(17), 16]),
    "large": (softmax, (300,), [random(300, 1000), torch.empty(300, 1000), 1000, 1024]),
}
"""Kernels whose programs run at once, at least some of them."""

APART = {
    "added up twice": (added_up_twice, (40,), [random(40, 16), torch.zeros(1), 16]),
    "tickets": (tickets, (8,), [torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)]),
    "same everywhere": (same_everywhere, (4,), [random(1), torch.empty(1)]),
    "handed on": (handed_on, (6,), [torch.zeros(7 * 16), 16]),
    "loops of all lengths": (ragged, (6,), [torch.arange(6) * 16 % 64, random(6, 64), torch.empty(6), 16]),
    "failing": (failing, (8,), [random(8 * 16), torch.zeros(8 * 16), 16]),
    "beyond": (beyond, (8,), [random(8 * 16), torch.zeros(8 * 16), 16]),
    "nothing written": (softmax, (13,), [torch.empty(12, 50), torch.empty(13, 50), 50, 64]),
}
"""Kernels whose programs may only run one after the other."""


def checked_types() -> None:
    """Requires that arrays have the shapes that kernels see, behind the axis of programs."""
    init = tl.tensor.__init__

    def checked(tensor, handle, kind):
        init(tensor, handle, kind)
        if type(handle) is interpreter.TensorHandle:
            shape = tuple(kind.shape.values) if kind.is_block() else ()
            assert handle.data.shape[1:] == shape, f"{handle.data.shape} for {kind}"

    tl.tensor.__init__ = checked


def outcome(case, *, at_once):
    """What launches write, and what is recorded of them: decisions, operations, two mutants, and the first fault."""
    kernel, grid, arguments = case
    InterpreterBuilder.may_batch = at_once
    given = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    operations, sanitizer = Operations(__file__), Sanitizer(torch.empty(0), {}, __file__)
    executors, seen, launch = [], [], interpreter.GridExecutor.__call__

    def recorded(executor, *args, **kwargs):
        executors.append(executor)
        launch(executor, *args, **kwargs)
        seen.append([each.view(torch.uint8).numpy().tobytes().hex() for each in tensors])

    interpreter.GridExecutor.__call__ = recorded
    try:
        with sanitizer.watching():
            with operations.recording():
                kernel[grid](*given)
            with operations.tracking({}):
                kernel[grid](*given)
            for each in sorted(operations.found(), key=str)[:2]:
                with operations.tracking({"operation": each["operation"], "scaled": True}):
                    kernel[grid](*given)
    except InterpreterError as error:
        seen.append(str(error))
    finally:
        interpreter.GridExecutor.__call__ = launch
    sites = operations.report()
    for site in sites:
        if site["yes"] and site["no"]:
            site["near"] = None  # one program after the other ends looking there
    seen += [sanitizer.fault, sites, sorted(operations.found(), key=str)]
    return {"seen": seen, "at once": [executor.at_once for executor in executors]}


def main():
    prepare_interpreter()
    checked_types()
    json.dump(
        {
            name: [outcome(case, at_once=at_once) for at_once in (True, False)]
            for name, case in {**CASES, **APART}.items()
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
