"""The kernels of a decode step in Triton's interpreter, in a process of their own."""

import os
import subprocess
import sys

import pytest

ROTATE = """
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from pytest_kernelllm.models.local.step_kernels import rotate

torch.use_deterministic_algorithms(True)  # fresh memory then holds NaN
for rows, tokens, heads, key_heads, width in ((3, 1, 4, 2, 16), (2, 5, 1, 1, 12), (1, 1, 2, 4, 128)):
    # As projections leave them: parts of one tensor, tokens before heads.
    both = torch.randn(rows, tokens, (heads + key_heads) * width)
    q, k = both.split([heads * width, key_heads * width], -1)
    q, k = (x.unflatten(-1, (-1, width)).transpose(1, 2) for x in (q, k))
    cos, sin = torch.randn(2, rows, tokens, width)
    expected = apply_rotary_pos_emb(q, k, cos, sin)
    torch.testing.assert_close(rotate(q, k, cos, sin), expected)
"""

STORE = """
import torch
from pytest_kernelllm.models.local.step_kernels import store

rows, heads, length, width = 3, 2, 7, 12
key, value = (torch.randn(rows, 1, heads * width * 3)[..., :heads * width].unflatten(-1, (heads, -1)).transpose(1, 2) for _ in range(2))
keys, values = torch.randn(2, rows, heads, length, width)
positions = torch.tensor([0, 6, 3])
expected = [keys.clone(), values.clone()]
for there, new in zip(expected, (key, value)):
    there[torch.arange(rows), :, positions] = new[:, :, 0]
store(key, value, keys, values, positions)
assert torch.equal(keys, expected[0]) and torch.equal(values, expected[1])
"""


@pytest.mark.parametrize("script", [ROTATE, STORE], ids=["rotate", "store"])
def test_a_kernel_does_what_the_operations_did(script) -> None:
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
