# style: A decorator makes tensors contiguous before a function, and an enumeration names the ways to compute.

import contextlib
import enum
import functools

import torch
import triton
import triton.language as tl


class Base(enum.IntEnum):
    E = 0
    TWO = 1


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BASE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask=mask, other=-float("inf"))
    x -= tl.max(x, axis=0)
    if BASE == 0:
        powers = tl.exp(x)
    else:
        powers = tl.exp2(x * 1.4426950408889634)
    tl.store(out_ptr + row + columns, powers / tl.sum(powers, axis=0), mask=mask)


def contiguous(function):
    @functools.wraps(function)
    def wrapper(*tensors, **settings):
        tensors = [each.contiguous() for each in tensors]
        with torch.cuda.device(tensors[0].device) if tensors else contextlib.nullcontext():
            return function(*tensors, **settings)

    return wrapper


@contiguous
def softmax(x, base=Base.E.value):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BASE=base, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def forward(self, x):
    return softmax(x, base=Base.TWO.value)
