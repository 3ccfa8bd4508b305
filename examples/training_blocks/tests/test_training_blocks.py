"""The blocks and their gradients against float64, at few tokens; on a GPU too if there is one.

Nothing here knows about kernels: these tests hold before and after one is adopted.
"""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from training_blocks import GEGLU, LayerNorm, RMSNorm, RotaryEmbedding, SoftmaxCrossEntropy, SwiGLU


@pytest.fixture(autouse=True, params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with torch.device(request.param):
        yield


def floats(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def calls() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    return {
        "RMSNorm": (RMSNorm(4096), (floats(2, 3, 4096),)),
        "LayerNorm": (LayerNorm(4096), (floats(2, 3, 4096),)),
        "SwiGLU": (SwiGLU(), (floats(2, 3, 130), floats(2, 3, 130))),
        "GEGLU": (GEGLU(), (floats(2, 3, 130), floats(2, 3, 130))),
        "RotaryEmbedding": (RotaryEmbedding(128), (floats(2, 32, 3, 128), floats(2, 8, 3, 128))),
        "SoftmaxCrossEntropy": (SoftmaxCrossEntropy(), (floats(5, 200), torch.randint(200, (5,)))),
    }


def both_ways(module: nn.Module, values: tuple[Tensor, ...], seed: int) -> list[Tensor]:
    """Outputs, and gradients of inputs and parameters for random gradients of the outputs."""
    given = [v.clone().requires_grad_() if v.is_floating_point() else v for v in values]
    found = module(*given)
    outputs = list(found) if isinstance(found, tuple) else [found]
    generator = torch.Generator(outputs[0].device).manual_seed(seed)
    into = [
        torch.randn(o.shape, generator=generator, device=o.device).bfloat16().to(o.dtype) for o in outputs
    ]
    sources = [*(v for v in given if v.requires_grad), *module.parameters()]
    return [*outputs, *torch.autograd.grad(outputs, sources, into)]


@pytest.mark.parametrize("name", calls())
def test_outputs_and_gradients(name: str) -> None:
    module, values = calls()[name]
    module = module.bfloat16().train()
    wide = copy.deepcopy(module).double()
    expected = both_ways(wide, tuple(v.double() if v.is_floating_point() else v for v in values), seed=1)
    for found, right in zip(both_ways(module, values, seed=1), expected, strict=True):
        torch.testing.assert_close(found.double(), right.double(), rtol=3e-2, atol=3e-2)
