"""What a release tries with its wheels, in the environment that runs this: ``python try_wheels.py pair|project``.

Only the standard library is imported here. The project is the tutorial's.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BIN = Path(sys.executable).parent
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "index.md"

REFERENCE = """
import torch
from torch import nn

print("imported")


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def get_inputs():
    return [torch.randn(16, 100)]


def get_init_inputs():
    return []
"""

ANSWER = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    tl.store(out_ptr + i, tl.where(x < 0.0, 0.0, x) + 1.0, i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""


def judge_a_pair(folder: Path) -> None:
    """A right answer is accepted and a wrong one rejected, by the judge alone."""
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "answer.py").write_text(ANSWER)
    (folder / "wrong.py").write_text(ANSWER.replace("+ 1.0", "+ 2.0"))
    for name, code, verdict in (("answer.py", 0, "accepted"), ("wrong.py", 1, "rejected")):
        printed = run(folder, "kernelllm-judge", "reference.py", name, "--json", code=code)
        assert json.loads(printed.splitlines()[-1])["verdict"] == verdict, printed
    absent = "import importlib.util as u; assert not any(map(u.find_spec, ('pytest', 'pytest_kernelllm')))"
    run(folder, "python", "-c", absent)


def adopt_in_a_project(folder: Path) -> None:
    """The tutorial's module gets a kernel, which is applied and tested."""
    [marked] = re.findall(
        r"^```python\n(# norms\.py\n.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE
    )
    (folder / "norms.py").write_text(marked)
    run(folder, "pytest", "-q", "--kernelllm", "--kernelllm-samples", "1")
    assert "applied norms.GatedNorm" in run(folder, "kernelllm", "apply")
    assert "adopted" in run(folder, "pytest", "-q", "--kernelllm")


def run(folder: Path, program: str, *arguments: str, code: int = 0) -> str:
    """Runs a program of this environment; its output. Ends with its exit code if that is another than ``code``."""
    done = subprocess.run(
        [BIN / program, *arguments],
        cwd=folder,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(f"$ {program} {' '.join(arguments)[:100]}\n{done.stdout}", flush=True)
    if done.returncode != code:
        raise SystemExit(f"{program} ended with {done.returncode}, not {code}")
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        {"pair": judge_a_pair, "project": adopt_in_a_project}[sys.argv[1]](Path(scratch))
