"""Errors of a candidate in words: what Triton's compiler says ends with its reason, not with the kernel's text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelllm_judge.worker.errors import describe

HERE = Path(__file__).parent


@triton.jit
def missing(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, tl.no_such_function(x))


@triton.jit
def seven(x):
    return tl.reshape(x, (7,))


@triton.jit
def in_a_function(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x_ptr + offsets, seven(tl.load(x_ptr + offsets)))


@triton.jit
def flat_product(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    y = tl.dot(x, x)
    tl.store(x_ptr + offsets, y)


def messages() -> dict[str, str]:
    """What is said of each kernel; in a process of its own, as the tests run in Triton's interpreter."""
    found = {}
    for kernel in (missing, in_a_function, flat_product):
        source = ASTSource(kernel, {"x_ptr": "*fp32", "N": "constexpr"}, {"N": 16})
        try:
            triton.compile(source, target=GPUTarget("cuda", 90, 32))
        except Exception as error:
            found[kernel.__name__] = describe(error, HERE)["message"]
    return found


def test_what_the_compiler_says_ends_with_its_reason():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(HERE.parents[2])
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["missing"].endswith(
        "'no_such_function'\") at `tl.store(x_ptr + offsets, tl.no_such_function(x))`"
    )
    assert found["in_a_function"] == "Shape element 0 must be a power of 2 at `return tl.reshape(x, (7,))`"
    assert found["flat_product"].endswith("must have equal ranks >= 2 at `y = tl.dot(x, x)`")
    assert not any("tl.arange" in message for message in found.values())


def test_other_errors_keep_their_words():
    assert describe(ValueError("bad\n  size ^ 2"), HERE) == {
        "type": "ValueError",
        "message": "bad size ^ 2",
        "line": None,
    }


if __name__ == "__main__":
    print(json.dumps(messages()))
