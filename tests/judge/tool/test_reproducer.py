"""Scripts that show, without the judge, where a rejected kernel is wrong."""

import json
import os
import subprocess
import sys

import pytest

from kernelllm_judge.candidate import Speed
from kernelllm_judge.tool.warm import WarmJudge

MARKED = """
import torch
from torch import nn

from kernelllm_runtime import triton_candidate

print("noise of the reference")


def rows(n=48):
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)})
class Scale(nn.Module):
    def __init__(self, width, eps=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * self.weight + self.eps


@triton_candidate(inputs=rows, dims={"n": (1, 64)}, backward=True)
class Square(nn.Module):
    def forward(self, x):
        return x * x


@triton_candidate(inputs=rows, dims={"n": (1, 64)}, training=True)
class Seen(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(64))

    def forward(self, x):
        self.last.copy_(x[0] * 2)
        return x + 1
"""

HEAD = """
import torch
import triton
import triton.language as tl
"""

SCALE = f"""{HEAD}
@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(out_ptr + row + columns, x * tl.load(weight_ptr + columns) + eps)


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=64)
    return out
"""

OPEN = """
SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", 64))},
        "dims": {"n": (1, 64)},
        "attributes": {"weight": ("float32", (64,))},
        "training": False,
        "grad": False,
    },
)
"""
"""Leaves ``eps`` open."""

SQUARE = f"""{HEAD}
@triton.jit
def square_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, x * x, at < n)


@triton.jit
def slope_kernel(x_ptr, flowing_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, 3 * x * tl.load(flowing_ptr + at, at < n), at < n)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        square_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, flowing):
        (x,) = ctx.saved_tensors
        flowing = flowing.contiguous()
        out = torch.empty_like(x)
        slope_kernel[(triton.cdiv(x.numel(), 256),)](x, flowing, out, x.numel(), BLOCK=256)
        return out


def forward(self, x):
    return Squared.apply(x)
"""

SEEN = f"""{HEAD}
@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + 1, at < n)


def forward(self, x):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""

WRONG = {
    "values": ("Scale", SCALE.replace("+ eps)", "+ eps + 1)"), "['output'] at [0, "),
    "memory": ("Scale", SCALE.replace("x_ptr + row + columns)", "x_ptr + row + columns + 1)"), ", got nan"),
    "attributes": ("Scale", OPEN + SCALE.replace("self.eps,", "abs(self.eps),"), "['output'] at [0, "),
    "types": ("Scale", SCALE.replace("return out", "return out.double()"), "got torch.float64 [1, 64]"),
    "gradients": ("Square", SQUARE, "['gradient']['x'] at [0, "),
    "buffers updated": ("Seen", SEEN, "['buffer']['last'] at ["),
}
"""By the rule that is broken: the class, a kernel for it, and what the script prints."""

ALONE = """
import runpy
import sys

sys.modules["kernelllm_judge"] = None  # importing it fails
for file in sys.argv[1:]:
    print("script", file)
    runpy.run_path(file, run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproducers")
    (folder / "layers.py").write_text(MARKED)
    return folder


@pytest.fixture(scope="module")
def judged(folder):
    with WarmJudge("cpu") as warm:
        speed = Speed(timing=False)
        yield {
            rule: warm.judge(f"{folder / 'layers.py'}::{cls}", text, speed, folder / f"wrong {rule}.py")
            for rule, (cls, text, _) in WRONG.items()
        } | {
            "static check": warm.judge(
                f"{folder / 'layers.py'}::Scale", SCALE + "import os\n", speed, folder / "os.py"
            )
        }


@pytest.fixture(scope="module")
def printed(judged):
    """What each script prints where the judge cannot be imported."""
    scripts = [str(each.reproducer) for each in judged.values() if each.reproducer]
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *scripts], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parts = [part.partition("\n") for part in done.stdout.split("script ")[1:]]
    return {name: text for name, _, text in parts}


@pytest.mark.parametrize("rule", WRONG)
def test_the_script_shows_what_is_wrong_at_the_smallest_size(rule, judged, printed):
    assert (judged[rule].verdict.rule, judged[rule].note) == (rule, "")
    file = judged[rule].reproducer
    assert WRONG[rule][2] in printed[str(file)]
    assert " n=1, " in " ".join(file.read_text().split()), "the case's own size is 48"


def test_what_one_call_does_not_show_has_no_script(judged, folder):
    assert judged["static check"].verdict.rule == "static check"
    assert judged["static check"].reproducer is None and not (folder / "os.py").exists()
    assert judged["static check"].note == (
        "there is no reproducer: what breaks the rule `static check` does not show in one plain call"
    )


def test_the_command_names_the_script_in_its_line_of_json(folder):
    (folder / "candidate.py").write_text(WRONG["values"][1])
    command = [
        sys.executable,
        "-m",
        "kernelllm_judge.cli",
        "layers.py::Scale",
        "candidate.py",
        "--device",
        "cpu",
    ]
    done = subprocess.run(
        [*command, "--json", "--reproducer", "shown/wrong.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    line = json.loads(done.stdout)
    assert (line["rule"], line["reproducer"]) == ("values", "shown/wrong.py")
    assert "noise of the reference" in done.stderr
    shown = {file.name for file in (folder / "shown").iterdir()}
    assert shown == {"wrong.py", "wrong_kernel.py", "wrong.pt"}


def test_a_reference_that_changed_is_loaded_again(tmp_path):
    (tmp_path / "helper.py").write_text("AMOUNT = 1\n")
    text = MARKED.replace("import torch\n", "import helper\nimport torch\n", 1).replace(
        "x + 1", "x + helper.AMOUNT"
    )
    (tmp_path / "changing.py").write_text(text)
    kernel = SEEN.replace("    return out", "    self.last.copy_(x[0] * 2)\n    return out")
    with WarmJudge("cpu") as warm:
        reference = f"{tmp_path / 'changing.py'}::Seen"
        assert warm.judge(reference, kernel, Speed(timing=False)).verdict.accepted
        (tmp_path / "helper.py").write_text("AMOUNT = 222\n")
        again = warm.judge(reference, kernel, Speed(timing=False)).verdict
        assert again.rule == "values", again.in_words()
