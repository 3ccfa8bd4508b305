"""Every marked layer can be built and called as its marker says, and computes what its formula says."""

import pytest
import torch
import torch.nn.functional as F
from marked import activations, gemma, gpt2, llama, t5
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def shuffled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.copy_(0.05 * torch.randn_like(parameter))
    return module.double().eval()


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


def test_llama_rms_norm():
    norm, x = shuffled(llama.LlamaRMSNorm(4096)), llama.prompt(batch=1, seq=2).double()
    close(norm(x), F.rms_norm(x, (4096,), norm.weight, norm.variance_epsilon))


def test_llama_mlp():
    mlp, x = shuffled(llama.LlamaMLP(*llama.small_llama())), llama.hidden_states(batch=1, seq=2).double()
    gated = F.silu(x @ mlp.gate_proj.weight.T) * (x @ mlp.up_proj.weight.T)
    close(mlp(x), gated @ mlp.down_proj.weight.T)


def test_llama_rotary_embedding():
    x, _ = llama.positions(batch=2, seq=3)
    cos, sin = llama.LlamaRotaryEmbedding(*llama.small_llama())(x, torch.arange(3).repeat(2, 1))
    assert cos.shape == sin.shape == (2, 3, 64)
    close(cos.square() + sin.square(), torch.ones(2, 3, 64))
    close(cos[:, 0], torch.ones(2, 64))
    close(cos[:, :, 0], torch.arange(3.0).cos().repeat(2, 1))


def test_gemma_rms_norm():
    norm, x = shuffled(gemma.GemmaRMSNorm(2048)), gemma.prompt(batch=1, seq=2).double()
    close(norm(x), F.rms_norm(x, (2048,), 1 + norm.weight, norm.eps))


def test_t5_layer_norm():
    norm, x = shuffled(t5.T5LayerNorm(768)), t5.hidden_states(batch=1, seq=2).double()
    close(norm(x), F.rms_norm(x, (768,), norm.weight, norm.variance_epsilon))


def test_t5_gated_feed_forward():
    block = shuffled(t5.T5DenseGatedActDense(*t5.gated_t5()))
    x = t5.hidden_states(batch=1, seq=2).double()
    gated = F.gelu(x @ block.wi_0.weight.T, approximate="tanh") * (x @ block.wi_1.weight.T)
    close(block(x), gated @ block.wo.weight.T)


def test_gpt2_activation():
    x = gpt2.inside_the_block(batch=1, seq=2)
    close(gpt2.NewGELUActivation()(x), F.gelu(x, approximate="tanh"))


def test_gpt2_mlp():
    mlp, x = shuffled(gpt2.GPT2MLP(*gpt2.gpt2())), gpt2.hidden_states(batch=1, seq=2).double()
    inner = F.gelu(x @ mlp.c_fc.weight + mlp.c_fc.bias, approximate="tanh")
    close(mlp(x), inner @ mlp.c_proj.weight + mlp.c_proj.bias)


def test_fast_gelu():
    x = activations.projection(tokens=3, width=33)
    close(activations.FastGELUActivation()(x), F.gelu(x, approximate="tanh"))


def test_quick_gelu():
    x = activations.projection(tokens=3, width=33)
    close(activations.QuickGELUActivation()(x), x * torch.sigmoid(1.702 * x))


def test_relu_squared():
    x = activations.projection(tokens=3, width=33)
    close(activations.ReLUSquaredActivation()(x), x.clamp(min=0) ** 2)


def test_clipped_gelu():
    x = 30 * activations.projection(tokens=3, width=33)
    close(activations.ClippedGELUActivation(min=-10.0, max=10.0)(x), F.gelu(x).clamp(-10, 10))


def test_laplace():
    x = activations.projection(tokens=3, width=33)
    normal = torch.distributions.Normal(0.707107, 0.282095)
    close(activations.LaplaceActivation()(x), normal.cdf(x))
