"""What is shown of real kernels' addresses, and which wrong ones are refused, with the place and the size in the sentence."""

import re

import pytest
from certified import F32, Kernel, certifying

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.findings import Decision

DOMAIN, SIZES, SAMPLED = "proven for the domain", "proven at these sizes", "sampled"


@pytest.fixture(scope="module")
def certified():
    with certifying() as certify:
        yield certify


ADD = Kernel(
    """
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = here < n
    tl.store(out_ptr + here, tl.load(x_ptr + here, mask=mask) + tl.load(y_ptr + here, mask=mask), mask=mask)


def forward(self, x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
""",
    {"x": TensorSpec(F32, ("n", "m")), "y": TensorSpec(F32, ("n", "m"))},
    {"n": (1, 4096), "m": (1, 4096)},
    {"n": 8, "m": 16},
)

SOFTMAX = Kernel(
    """
@triton.jit
def softmax(out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=2):
        here = tl.arange(0, BLOCK)
        mask = here < n_cols
        x = tl.load(in_ptr + row * in_stride + here, mask=mask, other=-float("inf"))
        e = tl.exp(x - tl.max(x, 0))
        tl.store(out_ptr + row * out_stride + here, e / tl.sum(e, 0), mask=mask)


def forward(self, x):
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    softmax[(min(n_rows, 264),)](
        out, x, x.stride(0), out.stride(0), n_rows, n_cols, BLOCK=triton.next_power_of_2(n_cols)
    )
    return out
""",
    {"x": TensorSpec(F32, ("rows", "cols"))},
    {"rows": (1, 10000), "cols": (1, 4000)},
    {"rows": 32, "cols": 100},
)

LAYER_NORM = Kernel(
    """
@triton.jit
def layer_norm(x_ptr, out_ptr, w_ptr, b_ptr, mean_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    out_ptr += row * stride
    x_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        here = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + here, mask=here < n, other=0.0)
    mean = tl.sum(total, axis=0) / n
    tl.store(mean_ptr + row, mean)
    for start in range(0, n, BLOCK):
        here = start + tl.arange(0, BLOCK)
        mask = here < n
        w = tl.load(w_ptr + here, mask=mask)
        b = tl.load(b_ptr + here, mask=mask)
        x = tl.load(x_ptr + here, mask=mask, other=0.0)
        tl.store(out_ptr + here, (x - mean) * eps * w + b, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    mean = torch.empty(x.shape[0], device=x.device)
    layer_norm[(x.shape[0],)](x, out, self.weight, self.bias, mean, x.stride(0), x.shape[1], 1e-5, BLOCK=256)
    return out, mean
""",
    {"x": TensorSpec(F32, ("rows", 1000))},
    {"rows": (1, 100000)},
    {"rows": 32},
    {"weight": (1000,), "bias": (1000,)},
)

MATMUL = Kernel(
    """
@triton.autotune(
    configs=[triton.Config({"BM": 32, "BN": 64, "BK": 32}), triton.Config({"BM": 64, "BN": 32, "BK": 16}, num_warps=8)],
    key=["M", "N", "K"],
)
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    pid_m, pid_n = pid // across, pid % across
    am = (pid_m * BM + tl.arange(0, BM)) % M
    bn = (pid_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a = a_ptr + am[:, None] * sam + k[None, :] * sak
    b = b_ptr + k[:, None] * sbk + bn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a, mask=k[None, :] < K - i * BK, other=0.0),
                     tl.load(b, mask=k[:, None] < K - i * BK, other=0.0), acc)
        a += BK * sak
        b += BK * sbk
    cm = pid_m * BM + tl.arange(0, BM)
    cn = pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + scm * cm[:, None] + scn * cn[None, :], acc, mask=(cm[:, None] < M) & (cn[None, :] < N))


def forward(self, a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)
    matmul[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c
""",
    {"a": TensorSpec(F32, ("m", "k")), "b": TensorSpec(F32, ("k", "n"))},
    {"m": (16, 2000), "n": (16, 2000), "k": (16, 2000)},
    {"m": 64, "n": 96, "k": 48},
)

DESCRIPTOR = Kernel(
    """
@triton.jit
def double(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    out = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    out.store(at, 2 * x.load(at))


def forward(self, x):
    out = torch.empty_like(x)
    M, N = x.shape
    double[(triton.cdiv(M, 32), triton.cdiv(N, 64))](x, out, M, N, BM=32, BN=64)
    return out
""",
    {"x": TensorSpec(F32, ("m", "n"))},
    {"m": (1, 3000), "n": (1, 3000)},
    {"m": 64, "n": 96},
)

GATHER = Kernel(
    """
@triton.jit
def gather(table_ptr, index_ptr, out_ptr, n_rows, WIDTH: tl.constexpr):
    row = tl.load(index_ptr + tl.program_id(0))
    here = tl.arange(0, WIDTH)
    mask = (row >= 0) & (row < n_rows)
    tl.store(out_ptr + tl.program_id(0) * WIDTH + here, tl.load(table_ptr + row * WIDTH + here, mask=mask, other=0.0))


def forward(self, index):
    out = torch.empty((index.shape[0], 64), device=index.device)
    gather[(index.shape[0],)](self.table, index, out, 50, WIDTH=64)
    return out
""",
    {"index": TensorSpec("int64", ("n",))},
    {"n": (1, 5000)},
    {"n": 32},
    {"table": (50, 64)},
)

SCALED = Kernel(
    """
@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + here, tl.load(x_ptr + here, mask=here < n) * factor, mask=here < n)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), 2.0, BLOCK=128)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        scale[(triton.cdiv(grad.numel(), 128),)](grad, out, grad.numel(), 2.0, BLOCK=128)
        return out


def forward(self, x):
    return Scale.apply(x)
""",
    {"x": TensorSpec(F32, ("n", 5))},
    {"n": (1, 3000)},
    {"n": 30},
    grad=True,
)

RIGHT = {
    "add": (ADD, DOMAIN, DOMAIN, DOMAIN),
    "a softmax whose programs take several rows": (SOFTMAX, DOMAIN, DOMAIN, DOMAIN),
    "layer norm": (LAYER_NORM, DOMAIN, DOMAIN, DOMAIN),
    "an autotuned matmul": (MATMUL, DOMAIN, DOMAIN, DOMAIN),
    "tensor descriptors": (DESCRIPTOR, DOMAIN, DOMAIN, DOMAIN),
    "rows that data chooses, with a mask": (GATHER, DOMAIN, DOMAIN, DOMAIN),
    "rows that data chooses, without a mask": (
        GATHER.but(", mask=mask, other=0.0", ""),
        SAMPLED,
        DOMAIN,
        DOMAIN,
    ),
    "both passes": (SCALED, DOMAIN, DOMAIN, DOMAIN),
    "what PyTorch writes": (
        ADD.but("out = torch.empty_like(x)", "out = torch.empty_like(x)\n    out[:] = 0\n    out += x").but(
            "cdiv(x.numel(), 1024)", "cdiv(x.numel(), 2048)"
        ),
        DOMAIN,
        DOMAIN,
        DOMAIN,
    ),
    "one of two tensors": (
        ADD.but(
            "    mask = here < n",
            "    mask = here < n\n    if tl.program_id(1) == 0:\n        pointer = x_ptr\n    else:\n        pointer = y_ptr",
        ).but("tl.load(x_ptr + here, mask=mask)", "tl.load(pointer + here, mask=mask)"),
        DOMAIN,
        DOMAIN,
        DOMAIN,
    ),
    "67 million elements": (ADD.at(n=8192, m=8192), DOMAIN, DOMAIN, DOMAIN),
    "all programs write one element alike": (
        LAYER_NORM.but("tl.store(mean_ptr + row, mean)", "tl.store(mean_ptr + row // 2 * 2, 1.0)").but(
            "return out, mean", "return out"
        ),
        DOMAIN,
        SAMPLED,
        DOMAIN,
    ),
}


@pytest.mark.parametrize("kernel, bounds, races, outputs", RIGHT.values(), ids=RIGHT)
def test_what_is_shown_of_a_right_kernel(certified, kernel, bounds, races, outputs):
    found = certified(kernel)
    assert (found.bounds, found.races, found.outputs) == (bounds, races, outputs), found.why


def test_a_grid_in_groups_is_shown_at_its_sizes(certified):
    swizzled = MATMUL.but(
        "pid_m, pid_n = pid // across, pid % across",
        """width = 4 * across
    first = pid // width * 4
    size = min(tl.cdiv(M, BM) - first, 4)
    pid_m, pid_n = first + pid % width % size, pid % width // size""",
    )
    found = certified(swizzled)
    assert (found.bounds, found.races, found.outputs) == (SIZES, SIZES, SIZES), found.why


WRONG = {
    "a mask that is off by one": (
        ADD.but("mask = here < n", "mask = here <= n"),
        r"line 11 of `add` reads element 1 of `x_ptr`, which has 1 elements, in program \(0, 0, 0\), at default, n=1, m=1",
    ),
    "a mask that is missing in the last block of 67 million elements": (
        ADD.but("(triton.cdiv(x.numel(), 1024),)", "(triton.cdiv(x.numel(), 1024) + (x.numel() > 60000000),)")
        .but("mask = here < n", "mask = (here < n) | (n > 60000000)")
        .at(n=8192, m=8192),
        r"line 11 of `add` reads element 67,108,864 of `x_ptr`, which has 67,108,864 elements, in program \(65536, 0, 0\)",
    ),
    "offsets of 32 bits above 2**31 elements": (
        ADD.at(n=65536, m=32769),
        r"of `add` reads element -2,147,\d\d\d,\d\d\d of `x_ptr`, which has 2,147,549,184 elements, in program \(2097152, 0, 0\)",
    ),
    "two programs that write one row": (
        SOFTMAX.but("out_ptr + row * out_stride", "out_ptr + row // 2 * 2 * out_stride"),
        r"programs of `softmax` race for element 0 of `out_ptr`: program \([01], 0, 0\) writes it in line 14, "
        r"program \([01], 0, 0\) writes it in line 14, at default, rows=2, cols=\d+$",
    ),
    "a row that is read while another program writes it": (
        LAYER_NORM.but("x, out, self", "out, out, self").but(
            "tl.load(x_ptr + here, mask=here < n",
            "tl.load(x_ptr + stride * (row > 0) * -1 + here, mask=here < n",
        ),
        r"programs of `layer_norm` race for element \d+ of",
    ),
    "a block that is never written": (
        ADD.but("triton.cdiv(x.numel(), 1024)", "max(1, x.numel() // 1024)"),
        r"no program writes element [\d,]+ of output 0, which has [\d,]+ elements, at default, n=\d+, m=\d+$",
    ),
    "a program that is missing at one size": (
        LAYER_NORM.but("layer_norm[(x.shape[0],)]", "layer_norm[(x.shape[0] - 0 ** abs(x.shape[0] - 42),)]"),
        r"no program writes element 41 of output 1, which has 42 elements, at default, rows=42",
    ),
    "a store past the end for whole blocks only": (
        ADD.but("mask=mask)\n\n", "mask=(here < n) | ((n % BLOCK == 0) & (here == n)))\n\n").but(
            "triton.cdiv(x.numel(), 1024)", "x.numel() // 1024 + 1"
        ),
        r"line 11 of `add` writes element ([\d,]+) of `out_ptr`, which has \1 elements, in program \(\d+, 0, 0\), at default, n=1, m=1024",
    ),
    "a wrong gradient": (
        SCALED.but("(grad, out, grad.numel()", "(grad, out, grad.numel() + 1"),
        r"line 10 of `scale` reads element 5 of `x_ptr`, which has 5 elements, in program \(0, 0, 0\), at default, n=1",
    ),
}


@pytest.mark.parametrize("kernel, sentence", WRONG.values(), ids=WRONG)
def test_a_wrong_kernel_is_rejected_with_its_place(certified, kernel, sentence):
    with pytest.raises(Decision) as decision:
        print(certified(kernel))
    assert decision.value.rule == "addresses"
    assert re.search(sentence, decision.value.reason), decision.value.reason
