"""The settings of precision that a domain names: those under which the original may compute in TF32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loading import load

from kernelllm_judge.core.records import Completion
from kernelllm_judge.render.render import render
from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION, PREFIX, PRODUCT_PRECISION

pytestmark = pytest.mark.usefixtures("restored_precision")

MODULE = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda: torch.randn({shape}), dtypes={dtypes}, backward={backward})
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return {expression}
"""


def pins(
    folder: Path,
    expression: str,
    shape: str = "2, 4, 8",
    dtypes: tuple[str, ...] = ("float32",),
    backward: bool = False,
) -> list[dict[str, str]]:
    file = folder / f"layer_{len(list(folder.iterdir()))}.py"  # imported once each
    file.write_text(MODULE.format(expression=expression, shape=shape, dtypes=dtypes, backward=backward))
    cases = load(file).cases
    return [{n: str(v) for n, v in c.domain.attributes.items() if n.startswith(PREFIX)} for c in cases]


@pytest.mark.parametrize("expression", ["self.conv(x)", "nn.functional.conv1d(x, self.conv.weight)"])
def test_convolutions_depend_on_what_is_allowed_for_them(tmp_path: Path, expression: str) -> None:
    assert pins(tmp_path, expression) == [{CONVOLUTION_PRECISION: "tf32"}]


def test_what_is_computed_in_float32_counts_whatever_the_module_has(tmp_path: Path) -> None:
    found = pins(tmp_path, "self.conv(x)", dtypes=("bfloat16", "float32"))
    assert found == [{}, {CONVOLUTION_PRECISION: "tf32"}]
    inside = "nn.functional.conv1d(x.float(), self.conv.weight.float()).to(x.dtype)"
    assert pins(tmp_path, inside, dtypes=("bfloat16",)) == [{CONVOLUTION_PRECISION: "tf32"}]


def test_products_do_where_tf32_is_allowed_for_them(tmp_path: Path) -> None:
    assert pins(tmp_path, "self.linear(x)") == [{}]
    torch.set_float32_matmul_precision("high")
    assert pins(tmp_path, "self.linear(x)") == [{PRODUCT_PRECISION: "tf32"}]
    assert pins(tmp_path, "torch.relu(x)") == [{}]


def test_what_is_verified_without_tf32_holds_everywhere(tmp_path: Path) -> None:
    torch.backends.cudnn.allow_tf32 = False
    assert pins(tmp_path, "self.conv(x)") == [{}]


def test_a_convolution_that_is_not_called_does_not_count(tmp_path: Path) -> None:
    assert pins(tmp_path, "torch.relu(x)") == [{}]


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("torch.relu(x)", "2, 4, 2**20"),
        ("torch.relu(x) if not torch._C._len_torch_dispatch_stack() else 1 / 0", "2, 4, 8"),
    ],
)
def test_whatever_is_allowed_counts_where_nothing_shows(tmp_path: Path, expression: str, shape: str) -> None:
    assert pins(tmp_path, expression, shape) == [{CONVOLUTION_PRECISION: "tf32"}]


def test_the_backward_pass_counts_where_kernels_have_one(tmp_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    expression = "torch.cdist(x, x + 1)"  # whose backward pass alone is a product
    assert pins(tmp_path, expression, "2, 40, 8") == [{}]
    assert pins(tmp_path, expression, "2, 40, 8", backward=True) == [{PRODUCT_PRECISION: "tf32"}]


def test_a_call_more_changes_no_random_numbers(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    pins(tmp_path, "nn.functional.dropout(self.conv(x), training=True)")
    assert torch.equal(torch.get_rng_state(), before)


def test_every_kernel_module_of_the_target_says_so(tmp_path: Path) -> None:
    pins(tmp_path, "self.conv(x)")
    text = (
        "def forward(self, x):\n    return torch.nn.functional.conv1d(x, self.conv.weight, self.conv.bias)\n"
    )
    live = load(tmp_path / "layer_0.py")
    assert CONVOLUTION_PRECISION in render(Completion("files", 0, text, "kernel_module"), live).source
