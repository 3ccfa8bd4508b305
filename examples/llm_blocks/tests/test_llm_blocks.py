"""The blocks against torch.nn.functional, at the marked widths and few tokens; on a GPU too if there is one.

Nothing here knows about kernels: these tests hold before and after one is adopted.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from llm_blocks import (
    GatedMLP,
    HingeLoss,
    LayerNormGELU,
    Projection,
    ResidualRMSNorm,
    RMSNorm,
    RotaryEmbedding,
    SoftmaxCrossEntropy,
    SwiGLU,
    rotary_tables,
)
from torch import Tensor, nn

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}


@pytest.fixture(autouse=True, params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with torch.device(request.param), torch.no_grad():
        yield


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Compare with ``expected``, computed in float64."""
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual.double(), expected, **TOLERANCE[actual.dtype])


def shuffled(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The module in ``dtype`` with weights that are neither ones nor zeros."""
    for parameter in module.parameters():
        parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** (0.5 * (parameter.dim() - 1)))
    return module.to(dtype).eval()


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (2, 5)], ids=str)
def test_rms_norm(shape: tuple[int, int], dtype: torch.dtype) -> None:
    norm, x = shuffled(RMSNorm(4096), dtype), torch.randn(*shape, 4096, dtype=dtype)
    assert norm(x).dtype == dtype
    assert_close(norm(x), F.rms_norm(x.double(), (4096,), norm.weight.double(), norm.eps))


def test_rms_norm_of_zeros_is_zero() -> None:
    assert torch.equal(RMSNorm(4096)(torch.zeros(1, 2, 4096)), torch.zeros(1, 2, 4096))


@DTYPES
def test_residual_rms_norm(dtype: torch.dtype) -> None:
    norm = shuffled(ResidualRMSNorm(2048), dtype)
    x, residual = torch.randn(2, 2, 3, 2048, dtype=dtype)
    normed, total = norm(x, residual)
    assert_close(total, x.double() + residual.double())
    assert_close(normed, F.rms_norm(total.double(), (2048,), norm.weight.double(), norm.eps))


@DTYPES
def test_layer_norm_gelu(dtype: torch.dtype) -> None:
    block, x = shuffled(LayerNormGELU(1024), dtype), torch.randn(2, 3, 1024, dtype=dtype)
    weight, bias = block.weight.double(), block.bias.double()
    assert_close(block(x), F.gelu(F.layer_norm(x.double(), (1024,), weight, bias, block.eps)))


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 130)], ids=str)
def test_swiglu(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    gate, up = torch.randn(2, *shape, dtype=dtype)
    assert_close(SwiGLU()(gate, up), F.silu(gate.double()) * up.double())


def test_gated_mlp() -> None:
    mlp, x = shuffled(GatedMLP(1024, 2816)), torch.randn(1, 3, 1024)
    gate, up, down = (layer.weight.double() for layer in (mlp.gate, mlp.up, mlp.down))
    wide = x.double()
    assert_close(mlp(x), (F.silu(wide @ gate.T) * (wide @ up.T)) @ down.T)


def test_projection() -> None:
    block, x = shuffled(Projection(1024, 2048)), torch.randn(1, 3, 1024)
    assert_close(block(x), F.linear(x.double(), block.linear.weight.double(), block.linear.bias.double()))


@DTYPES
def test_rotary_is_a_turn_in_the_complex_plane(dtype: torch.dtype) -> None:
    q, k = torch.randn(2, 32, 7, 64, dtype=dtype), torch.randn(2, 8, 7, 64, dtype=dtype)
    cos, sin = (table.to(dtype) for table in rotary_tables(7, 64))
    turn = torch.complex(cos.double(), sin.double())[:, :32]
    for x, turned in zip((q, k), RotaryEmbedding()(q, k, cos, sin), strict=True):
        expected = torch.complex(*x.double().chunk(2, dim=-1)) * turn
        assert_close(turned, torch.cat((expected.real, expected.imag), dim=-1))


def test_rotary_depends_on_the_distance_only() -> None:
    q, k = torch.randn(1, 32, 1, 64), torch.randn(1, 8, 1, 64)
    q, k = q.expand(-1, -1, 9, -1).contiguous(), k.expand(-1, -1, 9, -1).contiguous()
    q, k = RotaryEmbedding()(q, k, *rotary_tables(9, 64))
    products = q[:, :8] @ k.mT
    torch.testing.assert_close(products[..., 1:, 1:], products[..., :-1, :-1], rtol=1e-3, atol=1e-4)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 2), (6, 1000)], ids=str)
def test_softmax_cross_entropy(shape: tuple[int, int], dtype: torch.dtype) -> None:
    logits, labels = 5 * torch.randn(shape, dtype=dtype), torch.randint(shape[1], shape[:1])
    assert_close(SoftmaxCrossEntropy()(logits, labels), F.cross_entropy(logits.double(), labels))


def test_softmax_cross_entropy_of_large_logits_is_finite() -> None:
    loss = SoftmaxCrossEntropy()(torch.tensor([[1e4, -1e4]]), torch.tensor([1]))
    assert loss == 2e4


def test_hinge_loss() -> None:
    scores, labels = torch.randn(5, 33), torch.randint(2, (5, 33)) * 2.0 - 1
    expected = F.margin_ranking_loss(scores.double(), torch.zeros(5, 33).double(), labels.double(), margin=1)
    assert_close(HingeLoss()(scores, labels), expected)


@pytest.mark.parametrize(
    ("build", "widths"),
    [
        (lambda: RMSNorm(4096), [4096]),
        (lambda: ResidualRMSNorm(2048), [2048, 2048]),
        (lambda: LayerNormGELU(1024), [1024]),
        (SwiGLU, [96, 96]),
        (lambda: GatedMLP(1024, 2816), [1024]),
        (lambda: Projection(1024, 2048), [1024]),
    ],
    ids=["RMSNorm", "ResidualRMSNorm", "LayerNormGELU", "SwiGLU", "GatedMLP", "Projection"],
)
def test_gradients_reach_inputs_and_parameters(build: Callable[[], nn.Module], widths: list[int]) -> None:
    with torch.enable_grad():
        block = build()
        inputs = [torch.randn(1, 2, width, requires_grad=True) for width in widths]
        outputs = block(*inputs)
        sum(out.square().sum() for out in (outputs if isinstance(outputs, tuple) else (outputs,))).backward()
    for tensor in (*inputs, *block.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().max() > 0
