"""Of which classes gradients will be wanted, as their files show."""

import textwrap

import pytest

from pytest_kernelllm.discover.scan import scan_file

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from kernelllm_runtime import triton_candidate
"""


def trained(tmp_path, name="Model", base="nn.Module", forward="return x * 2", rest=""):
    text = f"""
    @triton_candidate(inputs=lambda: torch.randn(4))
    class {name}({base}):
        def forward(self, x):
            {forward}
    """
    file = tmp_path / "layers.py"
    file.write_text(HEAD + textwrap.dedent(text) + rest)
    [target] = scan_file(file, tmp_path).targets
    return target.trained


@pytest.mark.parametrize("name", ["SmoothedCE", "FocalLoss", "MyBCE", "CE", "Smoothed_CE"])
def test_a_name_says_that_it_is_a_loss(tmp_path, name):
    assert trained(tmp_path, name) == "it is a loss"


def test_so_does_a_base(tmp_path):
    assert trained(tmp_path, "Smoothed", "nn.CrossEntropyLoss") == "it is a loss"


@pytest.mark.parametrize("name", ["Lossless", "DEVICE", "FORCE", "Cell"])
def test_other_names_do_not(tmp_path, name):
    assert trained(tmp_path, name) == ""


@pytest.mark.parametrize(
    "forward",
    [
        "return (x - 1).pow(2).mean()",
        "return torch.sum(x)",
        "return F.cross_entropy(x, x)",
        "return F.mse_loss(x, x)\n            def inner():\n                return x",
    ],
)
def test_one_number_comes_of_a_loss(tmp_path, forward):
    assert trained(tmp_path, forward=forward) == "it returns one number, as a loss does"


@pytest.mark.parametrize(
    "forward",
    [
        "return x.mean(-1)",
        "return torch.sum(x, dim=0)",
        "return F.mse_loss(x, x, reduction='none')",
        "return x.mean() if x.dim() else x",
        "if self.training:\n                return x.mean()\n            return x",
        "x.sum()",
    ],
)
def test_more_than_one_number_does_not(tmp_path, forward):
    assert trained(tmp_path, forward=forward) == ""


@pytest.mark.parametrize(
    "rest",
    [
        "def step(loss):\n    loss.backward()\n",
        "def make(model):\n    return torch.optim.AdamW(model.parameters())\n",
        "from torch.optim import SGD\n",
        "from torch import optim\n",
    ],
)
def test_a_file_trains(tmp_path, rest):
    assert trained(tmp_path, rest=rest) == "its file trains"


def test_a_backward_pass_of_its_own_is_no_training(tmp_path):
    assert trained(tmp_path, rest="class F2:\n    def backward(self, x):\n        return x\n") == ""


def test_a_marked_class_of_a_library_is_known_by_its_name(tmp_path):
    (tmp_path / "a.py").write_text(HEAD + "triton_candidate(nn.CrossEntropyLoss, inputs=lambda: None)\n")
    [target] = scan_file(tmp_path / "a.py", tmp_path).targets
    assert target.trained == "it is a loss"
