"""What Inductor cannot trace is named by the line of the user's file."""

from pathlib import Path

import pytest

from kernelllm_judge.core.records import Target
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

HEAD = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(6, 64)


"""

PART = """
import torch
from torch import nn


class Scaled(nn.Module):
    SCALE = torch.full((64,), 2.0)

    def forward(self, x):
        return x * self.SCALE + 1  # here
"""

FORWARDS = {
    "a branch on values": (
        "        y = x * 2\n        if y.sum() > 0:  # here\n            return y\n        return y + 1\n",
        "torch.export cannot trace it (what it does depends on values of its tensors) at {}",
    ),
    "a tensor as class constant": (
        "        return x * self.TABLE + 1  # here\n",
        "it uses a tensor that is neither a parameter nor a buffer (`register_buffer` makes it one) at {}",
    ),
    "a number read": (
        "        return x * x.max().item()  # here\n",
        "`aten.item.default` gives a number that depends on values of its tensors at {}",
    ),
    "a shape read": (
        "        return x[x > 0] * 2  # here\n",
        "the shape of what `aten.index.Tensor` gives depends on values of its tensors at {}",
    ),
    "random numbers": (
        "        y = x + 1\n        return y + torch.rand_like(y)  # here\n",
        "it draws random numbers (aten.rand.default) at {}",
    ),
    "a change in place": (
        "        self.count += 1  # here\n        return x + self.count\n",
        "it changes `count` in place at {}",
    ),
    "numpy": (
        "        return torch.from_numpy(x.numpy() * 2)  # here\n",
        "torch.export cannot trace it (.numpy() is not supported for tensor subclasses) at {}",
    ),
}


def note(target: Target, root: Path) -> str:
    live = load_target(root, target)
    ((_, completion),) = InductorGenerator().generate([Request(target, (0,), lambda: live)])
    assert completion.text == ""
    return completion.note


def expected(file: Path, sentence: str) -> str:
    lines = file.read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
    return sentence.format(f"{file.name}:{number}, `{lines[number - 1].strip()}`")


BOTH_PASSES = ("a branch on values", "a tensor as class constant", "numpy")
CALLS = [(kind, False) for kind in FORWARDS] + [(kind, True) for kind in BOTH_PASSES]


@pytest.mark.parametrize(("kind", "backward"), CALLS)
def test_the_sentence_names_the_line(tmp_path, kind, backward):
    forward, sentence = FORWARDS[kind]
    file = tmp_path / f"traced_{list(FORWARDS).index(kind)}_{backward}.py"
    file.write_text(
        f"{HEAD}@triton_candidate(inputs=rows, backward={backward})\n"
        "class Traced(nn.Module):\n    TABLE = torch.arange(64.0)\n\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('count', torch.zeros(64))\n\n    def forward(self, x):\n" + forward
    )
    [target] = scan_file(file, tmp_path).targets
    assert note(target, tmp_path) == expected(file, sentence)


def test_a_part_from_another_file_is_named_by_its_own_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    part, file = tmp_path / "traced_part.py", tmp_path / "traced_whole.py"
    part.write_text(PART)
    file.write_text(
        f"{HEAD}from traced_part import Scaled\n\n\n@triton_candidate(inputs=rows)\nclass Whole(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.ReLU(), Scaled())\n"
    )
    [target] = scan_file(file, tmp_path).targets
    assert note(target, tmp_path) == expected(part, FORWARDS["a tensor as class constant"][1])
