"""Kernels whose results differ between a GPU and Triton's own interpreter, and what a GPU computes.

Each ``check_…`` runs on the given device: compiled on ``cuda``, in the patched interpreter on ``cpu``.
"""

import pytest
import torch
import triton
import triton.language as tl

NAN = float("nan")


@triton.jit
def extremes(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.maximum(x, y))
    tl.store(out_ptr + N + i, tl.minimum(x, y))
    tl.store(out_ptr + 2 * N + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 3 * N + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))


def check_nan(device):
    x = torch.tensor([NAN, 1.0, NAN, -2.0], device=device)
    y = torch.tensor([3.0, NAN, NAN, 5.0], device=device)
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.empty(4, 4, device=device, dtype=dtype)
        extremes[(1,)](x.to(dtype), y.to(dtype), out, N=4)
        expected = torch.tensor(
            [[3.0, 1.0, NAN, 5.0], [3.0, 1.0, NAN, -2.0], [NAN, NAN, NAN, 5.0], [NAN, NAN, NAN, -2.0]]
        )
        torch.testing.assert_close(out.float().cpu(), expected, equal_nan=True)


@triton.jit
def reduced(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.max(x, 0))
    tl.store(out_ptr + 1, tl.min(x, 0))


@triton.jit
def reduced_with_index(x_ptr, out_ptr, N: tl.constexpr):
    top, index = tl.max(tl.load(x_ptr + tl.arange(0, N)), 0, return_indices=True)
    tl.store(out_ptr, top)
    tl.store(out_ptr + 1, index.to(tl.float32))


def check_nan_in_reductions(device):
    out = torch.empty(2, device=device)
    reduced[(1,)](torch.tensor([NAN, 1.0, 4.0, NAN], device=device), out, N=4)
    assert out.tolist() == [4.0, 1.0]
    if device == "cuda":  # which comparisons lose a NaN depends on the order of the reduction there
        return
    reduced_with_index[(1,)](torch.tensor([NAN, 1.0, 4.0, 2.0], device=device), out, N=4)
    assert out.tolist() == [4.0, 2.0]


@triton.jit
def clamped(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.clamp(x, -1.0, 1.0))
    tl.store(out_ptr + N + i, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))


def check_clamp(device):
    out = torch.empty(2, 4, device=device)
    clamped[(1,)](torch.tensor([NAN, -3.0, 0.5, 7.0], device=device), out, N=4)
    expected = torch.tensor([[-1.0, -1.0, 0.5, 1.0], [NAN, -1.0, 0.5, 1.0]])
    torch.testing.assert_close(out.cpu(), expected, equal_nan=True)


@triton.jit
def scaled(x_ptr, out_ptr, scale, negate, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i) * scale.to(tl.float32)
    if negate:
        x = -x
    tl.store(out_ptr + i, x)


@triton.jit
def shifted(x_ptr, out_ptr, shift, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + shift)


def check_scalars(device):
    x, out = torch.ones(4, device=device), torch.empty(4, device=device)
    for negate in (False, True):
        scaled[(1,)](x, out, 0.5, negate, N=4)
        assert out.tolist() == [-0.5 if negate else 0.5] * 4


def check_wide_scalars(device):
    x, out = torch.ones(4, device=device).double(), torch.empty(4, device=device).double()
    shifted[(1,)](x, out, 0.1, N=4)
    assert out.tolist() == [1.0 + torch.tensor(0.1).double().item()] * 4


@triton.jit
def product(x_ptr, y_ptr, out_ptr, PRECISION: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at), input_precision=PRECISION))


def check_dot(device):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(32, 32, generator=generator) for _ in range(2))
    exact = x.double() @ y.double()
    errors = {}
    for precision in ("ieee", "tf32x3", "tf32", None):
        out = torch.empty(32, 32, device=device)
        product[(1,)](x.to(device), y.to(device), out, PRECISION=precision, N=32)
        errors[precision] = ((out.double().cpu() - exact).norm() / exact.norm()).item()
    assert errors["ieee"] < 1e-6
    assert errors["tf32x3"] < 1e-5
    assert 1e-4 < errors["tf32"] < 2e-3
    assert errors[None] == errors["tf32"]


def check_bfloat16_dot(device):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(32, 32, generator=generator).bfloat16() for _ in range(2))
    out = torch.empty(32, 32, device=device)
    product[(1,)](x.to(device), y.to(device), out, PRECISION=None, N=32)
    torch.testing.assert_close(out.cpu(), x.float() @ y.float())


def check_grid(device):
    x, out = torch.ones(4, device=device), torch.empty(4, device=device)
    for grid in ((1, 65536), (1, 1, 65536)):
        with pytest.raises((ValueError, RuntimeError)):
            shifted[grid](x, out, 1.0, N=4)
    shifted[(2, 3, 1)](x, out, 1.0, N=4)
    assert out.tolist() == [2.0] * 4


CHECKS = {
    name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")
}
