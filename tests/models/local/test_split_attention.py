"""The attention kernels in Triton's interpreter (in a process of their own), and compiled for GPUs that are not there."""

import json
import os
import subprocess
import sys

import pytest
import torch

from pytest_kernelllm.models.local.attention import SPLIT, slots_attention

pytestmark = pytest.mark.slow

SCRIPT = """
import json
import sys
import traceback
import torch
from torch.nn import functional
from pytest_kernelllm.models.local.split_attention import split_attention

torch.use_deterministic_algorithms(True)  # fresh memory then holds NaN


def check(heads, group, width, length, counts):
    torch.manual_seed(0)
    rows = len(counts)
    query = torch.randn(rows, heads, group, width)
    key, value = torch.randn(2, rows, heads, length, width)
    lengths = torch.tensor(counts)
    there = (torch.arange(length) < lengths[:, None])[:, None, :, None]
    expected = functional.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), attn_mask=there.transpose(2, 3), scale=0.2
    ).float()
    # What lies beyond a row's length is never read.
    key, value = (part.masked_fill(~there, float("nan")) for part in (key, value))
    got = split_attention(query, key, value, lengths, 0.2, SPLIT)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


errors = {}
for name, sizes in json.loads(sys.argv[1]).items():
    try:
        check(*sizes)
    except Exception:
        errors[name] = traceback.format_exc()
print(json.dumps(errors))
""".replace("SPLIT", str(SPLIT))

SHAPES = {
    "several parts": (2, 4, 32, 3 * SPLIT),
    "a head each": (1, 1, 16, SPLIT + 64),
    "one part": (2, 3, 64, 64),
    "more than 16 share": (1, 17, 16, 2 * SPLIT),
}
"""Heads, queries that share a head's keys, width and length."""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """What went wrong in one interpreter, by name of the shape."""
    script = tmp_path_factory.mktemp("kernels") / "kernels.py"
    script.write_text(SCRIPT)
    orders = {
        name: (
            *shape,
            sorted({min(n, shape[-1]) for n in (1, 63, 64, 65, SPLIT, SPLIT + 1, shape[-1] - 1, shape[-1])}),
        )
        for name, shape in SHAPES.items()
    }
    done = subprocess.run(
        [sys.executable, script, json.dumps(orders)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SHAPES)
def test_the_kernels_agree_with_masked_attention_in_float64(errors, name):
    assert name not in errors, errors[name]


COMPILE = """
import itertools
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from pytest_kernelllm.models.local import split_attention as kernels

SHARED = 99 << 10  # bytes that a kernel may have on the GPUs that have least


def compiled(kernel, types, constants, arch):
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    # Addresses and the row's length are multiples of 16, as when launched.
    whole = [name for name, kind in types.items() if kind.startswith("*") or name == "length"]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in whole}
    source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, attributes)
    binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4})
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= SHARED, binary.metadata.shared


DTYPES = ("fp32", "bf16")  # a half compiles as a bfloat16 does
SIZES = ((128, 4), (64, 1), (16, 2), (256, 8))
for arch, dtype, (width, group) in itertools.product((86, 90), DTYPES, SIZES):
    sizes = {"GROUP": group, "GROUP_BLOCK": 16, "WIDTH": width}
    work = {"mixed_ptr": "*fp32", "top_ptr": "*fp32", "sum_ptr": "*fp32"}
    pointers = {name: f"*{dtype}" for name in ("query_ptr", "key_ptr", "value_ptr")}
    types = {**pointers, "lengths_ptr": "*i64", **work, "scale": "fp32", "length": "i32"}
    block = kernels.block_of(width, 4 if dtype == "fp32" else 2)
    constants = {"HEADS": 8, **sizes, "SPLIT": 256, "BLOCK": block}
    compiled(kernels._attend_kernel, types, constants, arch)
    out = {**work, "out_ptr": f"*{dtype}", "parts": "i32"}
    compiled(kernels._combine_kernel, out, {**sizes, "PARTS": 16}, arch)
"""


def test_the_kernels_compile_for_gpus(tmp_path):
    script = tmp_path / "compile.py"
    script.write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, script],
        # The real compiler, whatever mode this process runs Triton in.
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_a_gpu_what_lies_beyond_a_rows_length_does_not_count():
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 10, 8), torch.randn(2, 2, 10, 8)
    lengths = torch.tensor([3, 10])
    got, _ = slots_attention(torch.nn.Identity(), query, key, value, None, lengths=lengths)
    for row, count in enumerate(lengths.tolist()):
        keys, values = (part[row, :, :count].repeat_interleave(2, 0) for part in (key, value))
        weights = (query[row] @ keys.mT / 8**0.5).softmax(-1)
        torch.testing.assert_close(got[row, 0], (weights @ values)[:, 0])
