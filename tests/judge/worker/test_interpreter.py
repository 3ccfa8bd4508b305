"""The interpreter's patched bfloat16 against PyTorch's. In a process of its own: it patches Triton."""

import subprocess
import sys

import numpy as np
import torch

from kernelllm_judge.worker.gpu_semantics import narrow, widen

KERNELS = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from kernelllm_judge.worker.gpu_semantics import fix_bfloat16

fix_bfloat16()


@triton.jit
def product(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.where(x > y, x * y, -x) + 1.5)


@triton.jit
def rounded(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(tl.float32) * 1.01)


torch.manual_seed(0)
x, y, out = torch.randn(256).bfloat16(), torch.randn(256).bfloat16(), torch.empty(256).bfloat16()
product[(1,)](x, y, out, 256)
assert torch.equal(out, torch.where(x > y, x * y, -x) + 1.5)
rounded[(1,)](x, out, 256)
assert torch.equal(out, (x.float() * 1.01).bfloat16())
"""


def test_kernels_in_bfloat16_compute_what_torch_does(tmp_path):
    script = tmp_path / "kernels.py"
    script.write_text(KERNELS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_rounding_is_torchs_for_odd_values():
    values = np.array(
        [0.0, -0.0, 1.0, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1e-40, 1.00390625, 1.01171875], np.float32
    )
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(widen(narrow(values)), expected)
