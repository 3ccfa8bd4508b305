"""The faster types of Triton's interpreter against Triton's own. In processes of their own: they patch Triton."""

import json
import subprocess
import sys

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import itertools, json, operator, sys
import torch, triton, triton.language as tl
from kernelllm_judge.worker.batching import run_at_once
from kernelllm_judge.worker.fast_language import speed_up_language
from kernelllm_judge.worker.language import read_as_compiler

fast = sys.argv[1] == "fast"
if fast:
    run_at_once()
    speed_up_language()
read_as_compiler()

OPERATIONS = "add truediv mod and_ rshift lt".split()
DTYPES = "bool uint8 int8 int32 uint32 float16 float32 float64".split()
NUMBERS = (0, 1, -3, 300, 70000, 1 << 40, 0.0, 1.5, -2.25, 1e-42, 1e300, True)
seen = []


@triton.jit
def apply(x_ptr, y_ptr, op: tl.constexpr, kind: tl.constexpr, number: tl.constexpr):
    i = tl.arange(0, 4)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if kind == "blocks":
        z = op(x, y)
    elif kind == "block and scalar":
        z = op(x, tl.load(y_ptr))
    elif kind == "scalar and block":
        z = op(tl.load(x_ptr), y)
    elif kind == "column and row":
        z = op(x[:, None], y[None, :])
    elif kind == "column and block":
        z = op(x[:, None], y)
    elif kind == "other sizes":
        z = op(x, tl.load(y_ptr + tl.arange(0, 8) % 4))
    elif kind == "number last":
        z = op(x, number)
    else:
        z = op(number, x)
    [data] = z.handle.data if fast else [z.handle.data]  # of one program
    seen.append([str(z.type), str(z.shape), z.numel.value, data.dtype.str, data.tolist()])


def outcome(*arguments):
    seen.clear()
    try:
        apply[(1,)](*arguments)
    except Exception as error:
        return str(error)
    return seen[0]


values = {name: torch.tensor([3, 1, 2, 1]).to(getattr(torch, name)) for name in DTYPES}
kinds = ("blocks", "block and scalar", "scalar and block", "column and row", "column and block", "other sizes")
cases = [(a, b, kind, None) for a, b in itertools.product(DTYPES, DTYPES) for kind in kinds]
cases += [(a, a, kind, n) for a in DTYPES for kind in ("number last", "number first") for n in NUMBERS]
found = {
    f"{name} {a} {b} {kind} {n}": outcome(values[a], values[b], getattr(operator, name), kind, n)
    for name in OPERATIONS
    for a, b, kind, n in cases
}
print(json.dumps(found))
"""


def test_operations_give_what_tritons_own_do(tmp_path):
    script = tmp_path / "operations.py"
    script.write_text(SCRIPT)

    def results(speed: str) -> dict[str, object]:
        done = subprocess.run([sys.executable, "-W", "ignore", script, speed], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    fast, own = results("fast"), results("own")
    assert len(own) > 3000
    assert {case: (fast[case], own[case]) for case in own if repr(fast[case]) != repr(own[case])} == {}
