"""A model with fewer kernels computes the same."""

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from pytest_kernelllm.models.local.norms import replace_norms

SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
TOKENS = torch.arange(24).view(2, 12)


def random_weights(model):
    """Norms and biases off their defaults."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()


@pytest.mark.parametrize(
    ("config", "norms"),
    [(MistralConfig, 5), (Qwen2Config, 5), (Qwen3Config, 9), (GemmaConfig, 0), (Phi3Config, 5)],
)
@torch.no_grad()
def test_logits_are_the_same(config, norms) -> None:
    model = random_weights(AutoModelForCausalLM.from_config(config(**SIZES)))
    expected = model(TOKENS).logits
    assert replace_norms(model) == norms
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=1e-4, atol=1e-4)
    assert replace_norms(model) == 0


@pytest.mark.parametrize(
    "norm", [LlamaRMSNorm(16, 1e-3), T5LayerNorm(16, 1e-3)], ids=lambda n: type(n).__name__
)
def test_a_norm_that_computes_what_pytorchs_does_is_replaced_with_its_weight(norm) -> None:
    holder = nn.Sequential(norm)
    weight = norm.weight
    assert replace_norms(holder) == 1
    assert holder[0].weight is weight


class NoEpsilonRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states):
        return self.weight * hidden_states * hidden_states.pow(2).mean(-1, keepdim=True).rsqrt()


class CenteredRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states):
        return super().forward(hidden_states - hidden_states.mean(-1, keepdim=True))


@pytest.mark.parametrize(
    "norm", [GemmaRMSNorm(16), NoEpsilonRMSNorm(16), CenteredRMSNorm(16)], ids=lambda n: type(n).__name__
)
def test_a_norm_that_computes_something_else_stays(norm) -> None:
    assert replace_norms(nn.Sequential(norm)) == 0
