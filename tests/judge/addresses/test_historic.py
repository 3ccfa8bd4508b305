"""Mistakes of public kernels, as their issues describe them: each is refused, and accepted once it is fixed as it was there."""

import re

import pytest
from certified import F32, Kernel, certifying

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.findings import Decision


@pytest.fixture(scope="module")
def certified():
    with certifying() as certify:
        yield certify


def tensor(*shape):
    return TensorSpec(F32, shape)


NORM = Kernel(
    """
@triton.jit
def norm(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    here = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + here, mask=here < n, other=0.0)
    tl.store(out_ptr + row * stride + here, x * tl.rsqrt(tl.sum(x * x, 0) / n), mask=here < n)


def forward(self, x):
    out = torch.empty_like(x)
    norm[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
""",
    {"x": tensor("rows", 4096)},
    {"rows": (1, 1000000)},
    {"rows": 64},
)

ROPE = Kernel(
    """
@triton.jit
def rope(q_ptr, out_ptr, seq, row_stride, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    token = (tl.program_id(0) * seq + tl.program_id(1)).to(tl.int64)
    at = token * row_stride + tl.arange(0, HEADS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(out_ptr + at, tl.load(q_ptr + at) * 0.5)


def forward(self, q):
    out = torch.empty_like(q)
    rope[q.shape[0], q.shape[1]](q, out, q.shape[1], q.stride(1), HEADS=32, WIDTH=128)
    return out
""",
    {"q": tensor("batch", "seq", 32, 128)},
    {"batch": (1, 64), "seq": (1, 20000)},
    {"batch": 2, "seq": 64},
)

FILL = Kernel(
    """
@triton.jit
def fill(out_ptr, n, BLOCK: tl.constexpr):
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + here, 1.0, mask=here < n)


def forward(self, x):
    out = torch.empty_like(x)
    fill[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    return out
""",
    {"x": tensor("n", 10)},
    {"n": (327068000, 327068000)},
    {"n": 327068000},
)

CLUSTERED = Kernel(
    """
@triton.jit
def gemm(b_ptr, out_ptr, N, K, BN: tl.constexpr, MASKED: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    for k in range(0, K):
        if MASKED:
            b = tl.load(b_ptr + k * N + n, mask=n < N, other=0.0)
            tl.store(out_ptr + k * N + n, b, mask=n < N)
        else:
            tl.store(out_ptr + k * N + n, tl.load(b_ptr + k * N + n))


def forward(self, b):
    K, N = b.shape
    out = torch.empty_like(b)
    tiles = triton.cdiv(N, 256)
    masked = N % 256 != 0 or tiles % 2 != 0
    gemm[(triton.cdiv(tiles, 2) * 2,)](b, out, N, K, BN=256, MASKED=masked)
    return out
""",
    {"b": tensor(16, "n")},
    {"n": (256, 130000)},
    {"n": 512},
)

LINEAR = Kernel(
    """
@triton.jit
def linear(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    ram, rbn = rm % M, rn % N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + ram[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(b_ptr + rbn[None, :] * K + k[:, None], mask=k[:, None] < K, other=0.0)
        acc += tl.dot(a, b)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mask)


def forward(self, a):
    (M, K), N = a.shape, self.weight.shape[0]
    c = torch.empty((M, N), device=a.device)
    linear[triton.cdiv(M, 64), triton.cdiv(N, 64)](a, self.weight, c, M, N, K, BM=64, BN=64, BK=32)
    return c
""",
    {"a": tensor("m", 256)},
    {"m": (64, 2000)},
    {"m": 128},
    {"weight": (1000, 256)},
)

BLOCK_POINTER = Kernel(
    """
@triton.jit
def attend(q_ptr, out_ptr, rows, BM: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * BM
    q = tl.make_block_ptr(q_ptr, (rows, WIDTH), (WIDTH, 1), (at, 0), (BM, WIDTH), (1, 0))
    out = tl.make_block_ptr(out_ptr, (rows, WIDTH), (WIDTH, 1), (at, 0), (BM, WIDTH), (1, 0))
    tl.store(out, tl.load(q, boundary_check=(0,)) * 2, boundary_check=(0,))


def forward(self, q):
    out = torch.empty_like(q)
    attend[(triton.cdiv(q.shape[0], 128),)](q, out, q.shape[0], BM=128, WIDTH=64)
    return out
""",
    {"q": tensor("rows", 64)},
    {"rows": (1, 20000)},
    {"rows": 256},
)

STATE = Kernel(
    """
@triton.jit
def state(x_ptr, out_ptr, heads, K: tl.constexpr, V: tl.constexpr):
    batch, head = tl.program_id(1), tl.program_id(0)
    out_ptr += (batch * heads + head).to(tl.int64) * K * V
    x_ptr += (batch * heads + head).to(tl.int64) * K * V
    at = tl.arange(0, K)[:, None] * V + tl.arange(0, V)[None, :]
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def forward(self, x):
    out = torch.empty_like(x)
    state[x.shape[1], x.shape[0]](x, out, x.shape[1], K=128, V=128)
    return out
""",
    {"x": tensor("batch", "heads", 128, 128)},
    {"batch": (1, 40000), "heads": (1, 64)},
    {"batch": 2, "heads": 4},
)

COLUMNS = Kernel(
    """
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        here = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + row * n + here, tl.load(x_ptr + row * n + here, mask=here < n), mask=here < n)


def forward(self, x):
    out = torch.empty_like(x)
    scale[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
    return out
""",
    {"x": tensor("rows", "n")},
    {"rows": (1, 1000), "n": (1, 5000)},
    {"rows": 8, "n": 1000},
)

UNMASKED = LINEAR.but("a = tl.load(a_ptr + ram[:, None] * K", "a = tl.load(a_ptr + rm[:, None] * K").but(
    "mask=k[None, :] < K, other=0.0)", "mask=(k[None, :] < K) & (rm[:, None] < M), other=0.0)"
)

SMALLEST = Kernel(
    """
@triton.jit
def smallest(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    least = tl.full([BM], float("inf"), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        mask = (m[:, None] < M) & (n[None, :] < N)
        x = tl.load(x_ptr + m[:, None].to(tl.int64) * N + n[None, :], mask=mask, other=float("inf"))
        least = tl.minimum(least, tl.min(x, 1))
    tl.store(out_ptr + m, least, mask=m < M)


def forward(self, x):
    M, N = x.shape
    out = torch.empty(M, device=x.device)
    smallest[(triton.cdiv(M, 4),)](x, out, M, N, BM=4, BN=min(4096, triton.next_power_of_2(N)))
    return out
""",
    {"x": tensor("m", 48)},
    {"m": (1, 4000)},
    {"m": 8},
)

BUGS = {
    "Liger-Kernel 803: rows of 32 bits": (NORM, NORM.but(".to(tl.int64)", ""), "reads element -"),
    "Liger-Kernel 1335: tokens of 32 bits": (ROPE, ROPE.but(".to(tl.int64)", ""), "reads element -"),
    "triton 1058: more than 2**31 elements": (FILL, FILL.but(".to(tl.int64)", ""), "writes element -"),
    "FlagGems 4797: tiles of a pair, one of them beyond": (
        CLUSTERED,
        CLUSTERED.but(" or tiles % 2 != 0", ""),
        r"(reads|writes) element [\d,]+ of",
    ),
    "flash-attention 2789: a mask that no store gets": (
        LINEAR,
        LINEAR.but("acc, mask=mask)", "acc)"),
        r"line 19 of `linear` writes element [\d,]+ of `c_ptr`",
    ),
    "a block pointer stored without boundary_check": (
        BLOCK_POINTER,
        BLOCK_POINTER.but("* 2, boundary_check=(0,))", "* 2)"),
        r"writes element 64 of `out_ptr`, which has 64 elements, in program \(0, 0, 0\), at default, rows=1$",
    ),
    "flash-linear-attention 1080: states of 32 bits": (
        STATE,
        STATE.but(".to(tl.int64) * K * V\n    x_ptr", " * K * V\n    x_ptr"),
        "writes element -",
    ),
    "xformers 785: columns beyond one block": (
        COLUMNS,
        COLUMNS.but("range(0, n, BLOCK)", "range(0, 1, BLOCK)"),
        r"no program writes element 1,024 of output 0, which has 1,02\d elements, at default, rows=1, n=102\d$",
    ),
    "gpu-mode lectures 51: a product without masks": (
        UNMASKED,
        UNMASKED.but(" & (rm[:, None] < M)", ""),
        r"line 15 of `linear` reads element [\d,]+ of `a_ptr`",
    ),
    "FlagGems argmin: a block of rows without a mask": (
        SMALLEST,
        SMALLEST.but("mask=m < M)", "mask=True)"),
        r"line 16 of `smallest` writes element 1 of `out_ptr`, which has 1 elements, in program \(0, 0, 0\), at default, m=1$",
    ),
}


@pytest.mark.parametrize("fixed", [fixed for fixed, _, _ in BUGS.values()], ids=BUGS)
def test_a_fixed_kernel_is_proven(certified, fixed):
    # What asks whether a size is a multiple of another makes parts of a domain that lie in each other.
    reach = "at these sizes" if fixed is CLUSTERED else "for the domain"
    assert certified(fixed).in_words() == f"bounds and races and outputs proven {reach}"


@pytest.mark.parametrize(
    "wrong, sentence", [(wrong, sentence) for _, wrong, sentence in BUGS.values()], ids=BUGS
)
def test_a_mistake_is_found(certified, wrong, sentence):
    with pytest.raises(Decision) as decision:
        print(certified(wrong))
    assert re.search(sentence, decision.value.reason), decision.value.reason
