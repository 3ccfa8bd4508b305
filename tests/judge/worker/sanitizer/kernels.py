"""Kernels with and without memory faults. Run in a process of its own: the interpreter patches Triton."""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError

from kernelllm_judge.worker.sanitizer.sanitizer import Sanitizer
from kernelllm_judge.worker.tuning import Tuning
from kernelllm_judge.worker.warm import prepare_interpreter


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def discard(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.where(i < n, x, 0.0), mask=i < n)


@triton.jit
def copy_rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * BLOCK + i, mask=(i >= 0) & (row < n), other=0.0)
    tl.store(out_ptr + row * BLOCK + i, x, mask=(i >= 0) & (row < n))


@triton.jit
def lookup(index_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + tl.load(index_ptr + i)))


@triton.jit
def block_copy(x_ptr, out_ptr, n, edge, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x_ptr, (edge,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(out_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(target, tl.load(source, boundary_check=(0,)), boundary_check=(0,))


@triton.jit
def described_copy(x_ptr, out_ptr, n, edge, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, (edge,), (1,), (BLOCK,))
    target = tl.make_tensor_descriptor(out_ptr, (n,), (1,), (BLOCK,))
    target.store([0], source.load([0]))


@triton.jit
def shift_in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(x_ptr + i, x, mask=i < n)


@triton.jit
def plain_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.load(out_ptr) + tl.sum(x, 0))


@triton.jit
def atomic_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(out_ptr, tl.sum(x, 0))


@triton.jit
def flag(x_ptr, out_ptr, value, BLOCK: tl.constexpr):
    tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr, value * tl.program_id(0))


@triton.jit
def last_adds_up(
    x_ptr, partial_ptr, count_ptr, out_ptr, ORDER: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr
):
    program, programs = tl.program_id(0), tl.num_programs(0)
    tl.store(partial_ptr + program, tl.sum(tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK)), 0))
    if tl.atomic_add(count_ptr, 1, sem=ORDER, scope=SCOPE) == programs - 1:
        parts = tl.load(partial_ptr + tl.arange(0, 4), mask=tl.arange(0, 4) < programs, other=0.0)
        tl.store(out_ptr, tl.sum(parts, 0))


@triton.jit
def waiting_sum(
    x_ptr, partial_ptr, count_ptr, out_ptr, LEAST: tl.constexpr, LOOKS: tl.constexpr, BLOCK: tl.constexpr
):
    program, parts = tl.program_id(0), tl.num_programs(0) - 1
    if program < parts:
        tl.store(partial_ptr + program, tl.sum(tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK)), 0))
        tl.atomic_add(count_ptr, 1, sem="release")
    else:
        looks = 1
        while (tl.atomic_add(count_ptr, 0, sem="acquire") < LEAST) & (looks < LOOKS):
            looks += 1
        values = tl.load(partial_ptr + tl.arange(0, 4), mask=tl.arange(0, 4) < parts, other=0.0)
        tl.store(out_ptr, tl.sum(values, 0))


@triton.jit
def watched_sum(x_ptr, partial_ptr, count_ptr, out_ptr, HOW: tl.constexpr, BLOCK: tl.constexpr):
    program, parts = tl.program_id(0), tl.num_programs(0) - 1
    if program < parts:
        tl.store(partial_ptr + program, tl.sum(tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK)), 0))
        if HOW == "lane":
            lanes = tl.arange(0, 2)
            tl.atomic_add(count_ptr + lanes * 0, lanes, mask=lanes == 1, sem="release")
        else:
            tl.atomic_add(count_ptr, 1, sem="release")
    else:
        if HOW == "cas once":
            tl.atomic_cas(count_ptr, 0, 0, sem="acquire")
        elif HOW == "and once":
            tl.atomic_and(count_ptr, -1, sem="acquire")
        elif HOW == "lane":
            while tl.atomic_add(count_ptr, 0, sem="acquire") < parts:
                pass
        else:
            while tl.atomic_add(count_ptr, 0, sem="relaxed") < parts:
                pass
            tl.atomic_add(count_ptr, 0, sem="acquire")
        values = tl.load(partial_ptr + tl.arange(0, 4), mask=tl.arange(0, 4) < parts, other=0.0)
        tl.store(out_ptr, tl.sum(values, 0))


@triton.jit
def locked_sum(x_ptr, lock_ptr, out_ptr, RELEASE: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + tl.sum(x, 0))
    if RELEASE:
        tl.atomic_xchg(lock_ptr, 0)
    else:
        tl.store(lock_ptr, 0)


@triton.jit
def scatter(index_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(index_ptr + i), tl.load(x_ptr + i))


def tuned(**reset):
    configs = [triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})]
    return triton.autotune(configs, key=["n"], **reset)


@tuned()
@triton.jit
def tuned_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@tuned(reset_to_zero=["out_ptr"])
@triton.jit
def tuned_sum_from_zero(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@tuned(restore_value=["out_ptr"])
@triton.jit
def tuned_sum_restored(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x, mask=i < n)


X = torch.arange(16.0)


def new(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype)


def count():
    return zeros(1, dtype=torch.int32)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def partly_filled():
    out = new(4, 8)
    out[:, ::2].fill_(1.0)
    return out


def ceil(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


CASES = {
    "copy": lambda: copy[(3,)](X, new(16), 16, BLOCK=8),
    "copy of a view": lambda: copy[(1,)](X[3:7], new(4), 4, BLOCK=8),
    "copy across a view's end": lambda: copy[(1,)](X[3:7], new(8), 8, BLOCK=8),
    "copy one too many": lambda: copy[(3,)](X, new(17), 17, BLOCK=8),
    "write one too many": lambda: copy[(3,)](X, new(15), 16, BLOCK=8),
    "copy rows": lambda: copy_rows[(3,)](X, new(16), 2, BLOCK=8),
    "copy a row too many": lambda: copy_rows[(3,)](X, new(16), 3, BLOCK=8),
    "discard": lambda: discard[(1,)](X, new(13), 13, BLOCK=16),
    "discard beyond": lambda: discard[(1,)](new(13).zero_(), new(13), 13, BLOCK=16),
    "lookup": lambda: lookup[(1,)](torch.tensor([0, 15, 3, 3]), X, new(4), BLOCK=4),
    "lookup of -1": lambda: lookup[(1,)](torch.tensor([0, -1, 3, 3]), X, new(4), BLOCK=4),
    "lookup far away": lambda: lookup[(1,)](torch.tensor([0, 1 << 40, 3, 3]), X, new(4), BLOCK=4),
    "lookup very far away": lambda: lookup[(1,)](torch.tensor([0, 1 << 46, 3, 3]), X, new(4), BLOCK=4),
    "block pointer": lambda: block_copy[(1,)](X, new(12), 12, 16, BLOCK=16),
    "block pointer beyond": lambda: block_copy[(1,)](zeros(12), new(12), 12, 16, BLOCK=16),
    "descriptor": lambda: described_copy[(1,)](X, new(12), 12, 16, BLOCK=16),
    "descriptor beyond": lambda: described_copy[(1,)](zeros(12), new(12), 12, 16, BLOCK=16),
    "shift by one program": lambda: shift_in_place[(1,)](X.clone(), 16, BLOCK=16),
    "shift by two programs": lambda: shift_in_place[(2,)](X.clone(), 16, BLOCK=8),
    "plain sum": lambda: plain_sum[(2,)](X, zeros(1), BLOCK=8),
    "plain sum by one program": lambda: plain_sum[(1,)](X, zeros(1), BLOCK=8),
    "atomic sum": lambda: atomic_sum[(2,)](X, zeros(1), BLOCK=8),
    "atomic sum of garbage": lambda: atomic_sum[(2,)](X, new(1), BLOCK=8),
    "same value": lambda: flag[(2,)](X, new(1), 0.0, BLOCK=8),
    "other values": lambda: flag[(2,)](X, new(1), 1.0, BLOCK=8),
    "last adds up": lambda: last_adds_up[(2,)](
        X, new(4), zeros(1, dtype=torch.int32), new(1), "acq_rel", "gpu", BLOCK=8
    ),
    "last adds up, relaxed": lambda: last_adds_up[(2,)](
        X, new(4), zeros(1, dtype=torch.int32), new(1), "relaxed", "gpu", BLOCK=8
    ),
    "last adds up, released only": lambda: last_adds_up[(2,)](
        X, new(4), zeros(1, dtype=torch.int32), new(1), "release", "gpu", BLOCK=8
    ),
    "last adds up, own block only": lambda: last_adds_up[(2,)](
        X, new(4), zeros(1, dtype=torch.int32), new(1), "acq_rel", "cta", BLOCK=8
    ),
    "waits for all": lambda: waiting_sum[(3,)](X, new(4), count(), new(1), 2, 1000, BLOCK=8),
    "waits for too few": lambda: waiting_sum[(3,)](X, new(4), count(), new(1), 1, 1000, BLOCK=8),
    "looks once": lambda: waiting_sum[(3,)](X, new(4), count(), new(1), 2, 1, BLOCK=8),
    "looks twice": lambda: waiting_sum[(3,)](X, new(4), count(), new(1), 2, 2, BLOCK=8),
    "watches, then acquires": lambda: watched_sum[(3,)](X, new(4), count(), new(1), "relaxed", BLOCK=8),
    "released by a lane": lambda: watched_sum[(3,)](X, new(4), count(), new(1), "lane", BLOCK=8),
    "compares once": lambda: watched_sum[(3,)](X, new(4), count(), new(1), "cas once", BLOCK=8),
    "takes all bits once": lambda: watched_sum[(3,)](X, new(4), count(), new(1), "and once", BLOCK=8),
    "waits for a counter from garbage": lambda: waiting_sum[(3,)](
        X, new(4), new(1, dtype=torch.int32), new(1), 1 << 30, 1 << 31, BLOCK=8
    ),
    "locked sum": lambda: locked_sum[(2,)](X, zeros(1, dtype=torch.int32), zeros(1), True, BLOCK=8),
    "unlocked by a store": lambda: locked_sum[(2,)](X, zeros(1, dtype=torch.int32), zeros(1), False, BLOCK=8),
    "partly filled": lambda: discard[(1,)](partly_filled(), new(13), 13, BLOCK=32),
    "filled view": lambda: copy[(1,)](partly_filled()[0, ::8], new(1), 1, BLOCK=8),
    "scatter": lambda: scatter[(1,)](torch.tensor([3, 1, 0, 2]), X, new(4), BLOCK=4),
    "scatter to one place": lambda: scatter[(1,)](torch.tensor([3, 1, 1, 2]), X, new(4), BLOCK=4),
    "tuned sum": lambda: tuned_sum[ceil(16)](X, zeros(1), 16),
    "tuned sum from zero": lambda: tuned_sum_from_zero[ceil(16)](X, zeros(1), 16),
    "tuned sum restored": lambda: tuned_sum_restored[ceil(16)](X, zeros(1), 16),
    "tuned copy": lambda: tuned_copy[ceil(16)](X, new(16), 16),
}


def main():
    prepare_interpreter()
    tuning = Tuning()
    Autotuner.run = lambda tuner, *args, **kwargs: tuning.run(tuner, *args, **kwargs)
    faults = {}
    for name, run in CASES.items():
        sanitizer = tuning.sanitizer = Sanitizer(torch.empty(0), {}, __file__)
        with sanitizer.watching():
            try:
                run()
            except InterpreterError:  # who waits is ended, as in the worker
                assert sanitizer.fault is not None
        faults[name] = sanitizer.fault
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    main()
