"""Kernels whose results differ between a GPU and Triton's own interpreter, and what a GPU computes.

Each ``check_…`` runs on the given device: compiled on ``cuda``, in the patched interpreter on ``cpu``.
"""

import pytest
import torch
import triton
import triton.language as tl
from triton.language import extra, load as read, max as widest
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.extra.libdevice import rsqrt

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
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def welford(mean, squares, count, other_mean, other_squares, other_count):
    both = count + other_count
    apart = other_mean - mean
    share = other_count / both
    return mean + apart * share, squares + other_squares + apart * apart * count * share, both


@triton.jit
def reduced_by_own(x_ptr, rows_ptr, columns_ptr, all_ptr, variance_ptr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    tl.store(rows_ptr + rows, tl.reduce(x, 1, smaller))
    tl.store(columns_ptr + columns[None, :], tl.reduce(x, 0, smaller, keep_dims=True))
    tl.store(all_ptr, tl.reduce(x, None, smaller))
    _, squares, count = tl.reduce((x, tl.zeros_like(x), tl.full([M, N], 1.0, tl.float32)), 1, welford)
    tl.store(variance_ptr + rows, squares / count)


def check_own_reductions(device):
    torch.manual_seed(0)
    x = torch.randn(64, 128)
    x[3, 5] = NAN
    rows, columns, everything, variance = (torch.empty(n, device=device) for n in (64, 128, 1, 64))
    reduced_by_own[(1,)](x.to(device), rows, columns, everything, variance, M=64, N=128)
    for found, expected in ((rows, x.amin(1)), (columns, x.amin(0)), (everything, x.amin().reshape(1))):
        assert torch.equal(found.cpu().nan_to_num(9.0), expected.nan_to_num(9.0))
    torch.testing.assert_close(variance.cpu(), x.var(1, unbiased=False), equal_nan=True)


@triton.jit
def branching(a, b):
    if a < b:
        return a
    return b


@triton.jit
def reduced_with_branches(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, N)), 0, branching))


def check_reduction_with_branches(device):
    if device == "cuda":  # which compiles them for some types only
        return
    out = torch.empty(1)
    reduced_with_branches[(1,)](torch.tensor([3.0, -1.0, 2.0, 4.0]), out, N=4)
    assert out.item() == -1.0


@triton.jit
def clamped(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.clamp(x, -1.0, 1.0))
    tl.store(out_ptr + N + i, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 2 * N + i, tl.clamp(x, -2.0, 1.0))


def check_clamp(device):
    out = torch.empty(3, 4, device=device)
    clamped[(1,)](torch.tensor([NAN, -3.0, 0.5, 7.0], device=device), out, N=4)
    expected = torch.tensor([[1.0, -1.0, 0.5, 1.0], [NAN, -1.0, 0.5, 1.0], [-2.0, -2.0, 0.5, 1.0]])
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
    for precision in ("ieee", "tf32x3", "bf16x6", "bf16x3", "tf32", None):
        out = torch.empty(32, 32, device=device)
        product[(1,)](x.to(device), y.to(device), out, PRECISION=precision, N=32)
        errors[precision] = ((out.double().cpu() - exact).norm() / exact.norm()).item()
    assert errors["ieee"] < 1e-6
    assert 1e-8 < errors["bf16x6"] < 3e-7
    assert 3e-8 < errors["tf32x3"] < 6e-7
    assert 1e-6 < errors["bf16x3"] < 1e-4
    assert 1e-4 < errors["tf32"] < 2e-3
    assert errors[None] == errors["tf32"]


def check_dot_of_infinity(device):
    x, y = torch.ones(32, 32, device=device), torch.ones(32, 32, device=device)
    x[0, 0], x[1, 0], y[0, 1] = torch.inf, torch.nan, -1.5
    for precision in ("ieee", "tf32x3", "bf16x6"):
        out = torch.empty(32, 32, device=device)
        product[(1,)](x, y, out, PRECISION=precision, N=32)
        assert out[0, 0] == torch.inf and out[0, 1] == -torch.inf, precision
        assert out[1].isnan().all() and (out[2:, 0] == 32).all(), precision


def check_bfloat16_dot(device):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(32, 32, generator=generator).bfloat16() for _ in range(2))
    out = torch.empty(32, 32, device=device)
    product[(1,)](x.to(device), y.to(device), out, PRECISION=None, N=32)
    torch.testing.assert_close(out.cpu(), x.float() @ y.float())


@triton.jit
def row_sum(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    total = tl.sum(tl.load(x_ptr + row * N + tl.arange(0, N)), axis=0)
    tl.store(out_ptr + row, total.to(tl.float32))


def check_half_sums(device):
    """A sum in half precision is a number, and each addition is rounded."""
    exact = torch.rand(64, 1024, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.bfloat16, torch.float16):
        x, out = exact.to(dtype), torch.empty(64, device=device)
        row_sum[(64,)](x.to(device), out, N=1024)
        right = x.double().sum(1)
        torch.testing.assert_close(out.cpu().double(), right, rtol=8 * torch.finfo(dtype).eps, atol=0)
        assert not torch.equal(out.cpu().to(dtype), right.to(dtype))


def check_grid(device):
    x, out = torch.ones(4, device=device), torch.empty(4, device=device)
    for grid in ((1, 65536), (1, 1, 65536)):
        with pytest.raises((ValueError, RuntimeError)):
            shifted[grid](x, out, 1.0, N=4)
    shifted[(2, 3, 1)](x, out, 1.0, N=4)
    assert out.tolist() == [2.0] * 4


@triton.jit
def masked_by_words(x_ptr, out_ptr, M, N, skip, ALWAYS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = rows < M and columns < N
    x = tl.load(x_ptr + rows * N + columns, mask=mask, other=0.0)
    edge = rows == 0 or columns == 0 or rows == M - 1
    x = tl.where(edge, x, -x)
    x = tl.where(not edge and x < -2, 7.0, x)
    if not skip and (ALWAYS or skip):
        tl.store(out_ptr + rows * N + columns, x, mask=ALWAYS and mask)


def check_words(device):
    x, out = torch.arange(15.0, device=device).view(3, 5), torch.zeros(20, device=device)
    masked_by_words[(1,)](x, out, 3, 5, True, ALWAYS=True, BLOCK=8)
    assert out.tolist() == [0.0] * 20
    masked_by_words[(1,)](x, out, 3, 5, False, ALWAYS=True, BLOCK=8)
    expected = x.cpu().clone()
    expected[1, 1:] = 7.0
    assert out[:15].tolist() == expected.flatten().tolist()
    assert out[15:].tolist() == [0.0] * 5


@triton.jit
def bounded_by_builtins(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, max(x, 0.0, 0.5))
    tl.store(out_ptr + N + i, min(max(x, -1.0), max(N, 1) / N))


def check_builtins(device):
    out = torch.empty(2, 4, device=device)
    bounded_by_builtins[(1,)](torch.tensor([-3.0, 0.0, 0.75, 4.0], device=device), out, N=4)
    assert out.tolist() == [[0.5, 0.5, 0.75, 4.0], [-1.0, 0.0, 0.75, 1.0]]


@triton.jit
def converted(x, dtype: tl.constexpr, FACTOR: tl.constexpr):
    return (x * FACTOR.value).to(dtype.value)


@triton.jit
def rounded_like(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, converted(x, out_ptr.dtype.element_ty, 2))
    tl.store(out_ptr + N + i, converted(x, tl.int32, N))


def check_value_of_constants(device):
    out = torch.empty(2, 4, device=device, dtype=torch.float16)
    rounded_like[(1,)](torch.tensor([0.1, 1.0, -2.5, 3.3], device=device), out, N=4)
    assert out.tolist() == [
        [torch.tensor(0.2).half().item(), 2.0, -5.0, torch.tensor(6.6).half().item()],
        [0, 4, -10, 13],
    ]


root = tl.rsqrt
squash = tl.sigmoid
device_root = libdevice.rsqrt


@triton.jit
def by_other_names(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = read(x_ptr + i)
    tl.store(out_ptr + i, root(x) + device_root(x) + rsqrt(x) + extra.libdevice.rsqrt(x))
    tl.store(out_ptr + N + i, squash(x) + widest(x, 0))


def check_other_names(device):
    x, out = torch.tensor([4.0, 0.25, 1.0, 16.0], device=device), torch.empty(2, 4, device=device)
    by_other_names[(1,)](x, out, N=4)
    torch.testing.assert_close(out[0].tolist(), [2.0, 8.0, 4.0, 1.0])
    torch.testing.assert_close(out[1], torch.sigmoid(x) + 16)


@triton.jit
def of_libdevice(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.tanh(x))
    tl.store(out_ptr + N + i, libdevice.erf(x) + cuda_libdevice.erfc(x))
    tl.store(out_ptr + 2 * N + i, libdevice.pow(libdevice.abs(x), 1.5) - libdevice.pow(x, 3))
    tl.store(out_ptr + 3 * N + i, libdevice.atan2(x, 2.0) + libdevice.fmod(x, 0.75))
    tl.store(out_ptr + 4 * N + i, libdevice.round(x) + 10 * libdevice.nearbyint(x) + 100 * libdevice.trunc(x))
    tl.store(out_ptr + 5 * N + i, tl.where(libdevice.isnan(x) | libdevice.isinf(x), 1.0, 0.0))
    tl.store(
        out_ptr + 6 * N + i,
        libdevice.copysign(2.0, x) * libdevice.cbrt(8 * libdevice.log1p(libdevice.abs(x))),
    )
    tl.store(out_ptr + 7 * N + i, libdevice.div_rn(libdevice.fast_expf(x), libdevice.fma(x, x, 1.0)))


def check_libdevice(device):
    x = torch.tensor([0.5, -0.5, 2.5, -1.75, 0.0, 3.49, NAN, float("inf")])
    out = torch.empty(8, 8, device=device)
    of_libdevice[(1,)](x.to(device), out, N=8)
    x = x.double()
    whole = (x.abs() + 0.5).floor().copysign(x) + 10 * x.round() + 100 * x.trunc()
    expected = [
        x.tanh(),
        x.erf() + x.erfc(),
        x.abs() ** 1.5 - x**3,
        torch.atan2(x, torch.tensor(2.0).double()) + torch.fmod(x, 0.75),
        whole,
        (x.isnan() | x.isinf()).double(),
        torch.tensor(2.0).double().copysign(x) * 2 * x.abs().log1p() ** (1 / 3),
        x.exp() / (x * x + 1),
    ]
    torch.testing.assert_close(
        out.double().cpu(), torch.stack(expected), equal_nan=True, rtol=1e-6, atol=1e-6
    )


@triton.jit
def quick(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.fast_sinf(x))
    tl.store(out_ptr + N + i, libdevice.fast_expf(x))
    tl.store(out_ptr + 2 * N + i, libdevice.fast_dividef(x, x))
    tl.store(out_ptr + 3 * N + i, libdevice.fast_logf(x))


def check_quick_functions(device):
    """They are accurate for small arguments only."""
    small, large = torch.tensor([0.5, 1.5, 3.0, 2.0]), torch.tensor([3e4, 80.0, 1e5, 3e38])
    for x, accurate in ((small, True), (large, False)):
        out = torch.empty(4, 4, device=device)
        quick[(1,)](x.to(device), out, N=4)
        out, exact = out.double().cpu(), x.double()
        assert ((out[0] - exact.sin()).abs().max().item() < 1e-5) is accurate
        assert out[1, 1].item() == pytest.approx(exact[1].exp().item(), rel=1e-5)
        assert out[2].tolist() == [1.0, 1.0, 1.0, 1.0 if accurate else 0.0]
        torch.testing.assert_close(out[3], exact.log(), rtol=1e-6, atol=1e-6)


@triton.jit
def bessel(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.yn(1, tl.load(x_ptr)))


def check_missing_function(device):
    if device == "cuda":
        return
    with pytest.raises(Exception, match="cannot compute libdevice's `__nv_ynf`"):
        bessel[(1,)](torch.ones(1), torch.empty(1))


@triton.jit
def to_eight_bits_and_back(x_ptr, codes_ptr, back_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(codes_ptr + i, tl.load(x_ptr + i).to(codes_ptr.dtype.element_ty))
    tl.store(back_ptr + i, tl.load(codes_ptr + i).to(tl.float32))


def check_eight_bits(device):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        most = torch.finfo(dtype).max
        x = torch.linspace(-40, 40, 1024)
        # The carry, halves to even, the largest number, subnormals, NaN, and what is too large.
        x[:9] = torch.tensor([31.5, 17.0, 19.0, most, 2.0**-9, 3 * 2.0**-10, NAN, 1e9, float("-inf")])
        codes = torch.empty(1024, dtype=dtype, device=device)
        back = torch.empty(1024, device=device)
        to_eight_bits_and_back[(1,)](x.to(device), codes, back, N=1024)
        expected = x.clamp(-most, most).to(dtype).float()
        torch.testing.assert_close(back.cpu(), expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(codes.float().cpu(), expected, rtol=0, atol=0, equal_nan=True)


CHECKS = {
    name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")
}
