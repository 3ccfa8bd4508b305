"""The attention kernels in Triton's interpreter (in a process of their own), and compiled for GPUs that are not there."""

import os
import subprocess
import sys

import pytest
import torch

from pytest_kernelllm.models.local.attention import SPLIT, slots_attention

SCRIPT = """
import sys
import torch
from torch.nn import functional
from pytest_kernelllm.models.local.split_attention import split_attention

torch.use_deterministic_algorithms(True)  # fresh memory then holds NaN
heads, group, width, length = (int(word) for word in sys.argv[1:5])
counts = [int(word) for word in sys.argv[5].split(",")]
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
""".replace("SPLIT", str(SPLIT))


@pytest.mark.parametrize(
    ("heads", "group", "width", "length"),
    [(2, 4, 32, 3 * SPLIT), (1, 1, 16, SPLIT + 64), (2, 3, 64, 64), (1, 17, 16, 2 * SPLIT)],
    ids=["several parts", "a head each", "one part", "more than 16 share"],
)
def test_the_kernels_agree_with_masked_attention_in_float64(tmp_path, heads, group, width, length):
    script = tmp_path / "kernels.py"
    script.write_text(SCRIPT)
    counts = sorted({min(n, length) for n in (1, 63, 64, 65, SPLIT, SPLIT + 1, length - 1, length)})
    done = subprocess.run(
        [sys.executable, script, *map(str, (heads, group, width, length)), ",".join(map(str, counts))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from pytest_kernelllm.models.local import split_attention as kernels

TARGET = GPUTarget("cuda", int(sys.argv[1]), 32)
SHARED = 99 << 10  # bytes that a kernel may have on the GPUs that have least


def compiled(kernel, types, constants):
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    # Addresses and the row's length are multiples of 16, as when launched.
    whole = [name for name, kind in types.items() if kind.startswith("*") or name == "length"]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in whole}
    source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, attributes)
    binary = triton.compile(source, target=TARGET, options={"num_warps": 4})
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= SHARED, binary.metadata.shared


for dtype in ("fp32", "bf16"):  # a half compiles as a bfloat16 does
    for width, group in ((128, 4), (64, 1), (16, 2), (256, 8)):
        sizes = {"GROUP": group, "GROUP_BLOCK": 16, "WIDTH": width}
        work = {"mixed_ptr": "*fp32", "top_ptr": "*fp32", "sum_ptr": "*fp32"}
        pointers = {name: f"*{dtype}" for name in ("query_ptr", "key_ptr", "value_ptr")}
        types = {**pointers, "lengths_ptr": "*i64", **work, "scale": "fp32", "length": "i32"}
        block = kernels.block_of(width, 4 if dtype == "fp32" else 2)
        constants = {"HEADS": 8, **sizes, "SPLIT": 256, "BLOCK": block}
        compiled(kernels._attend_kernel, types, constants)
        compiled(
            kernels._combine_kernel,
            {**work, "out_ptr": f"*{dtype}", "parts": "i32"},
            {**sizes, "PARTS": 16},
        )
"""


@pytest.mark.parametrize("arch", [86, 90])
def test_the_kernels_compile_for_gpus(tmp_path, arch):
    script = tmp_path / "compile.py"
    script.write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, script, str(arch)],
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
