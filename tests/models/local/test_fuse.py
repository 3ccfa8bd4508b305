"""A model with fewer kernels computes the same."""

import copy

import pytest
import torch
from random_llama import make_model
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

from pytest_kernelllm.models.local.fuse import (
    MergedLinear,
    MergedPart,
    fuse,
    merge_projections,
    replace_norms,
    rotate_in_one,
)

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
    ("config", "projections", "norms"),
    [
        (MistralConfig, 10, 5),
        (Qwen2Config, 10, 5),
        (Qwen3Config, 10, 9),
        (GemmaConfig, 10, 0),
        (Phi3Config, 0, 5),
    ],
)
@torch.no_grad()
def test_logits_are_the_same(config, projections, norms) -> None:
    model = random_weights(AutoModelForCausalLM.from_config(config(**SIZES)))
    expected, size = model(TOKENS).logits, sum(p.numel() for p in model.parameters())
    assert replace_norms(model) == norms
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=1e-4, atol=1e-4)
    assert merge_projections(model) == projections
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in model.parameters()) == size, "no weight is held twice"
    assert merge_projections(model) == replace_norms(model) == 0
    assert rotate_in_one(model) == 2
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=1e-4, atol=1e-4)
    assert rotate_in_one(model) == 0


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


def test_layers_that_cannot_be_one_stay() -> None:
    def block(**changed):
        parts = {"q_proj": nn.Linear(8, 8), "k_proj": nn.Linear(8, 4), "v_proj": nn.Linear(8, 4)}
        return nn.ModuleDict(parts | changed)

    hooked = nn.Linear(8, 4)
    hooked.register_forward_hook(lambda *_: None)
    others = {
        "another width": nn.Linear(6, 4),
        "another dtype": nn.Linear(8, 4, dtype=torch.float64),
        "no bias": nn.Linear(8, 4, bias=False),
        "a subclass": type("Quantised", (nn.Linear,), {})(8, 4),
        "a hook": hooked,
        "no layer": nn.Identity(),
    }
    for name, other in others.items():
        assert merge_projections(block(v_proj=other)) == 0, name
    assert merge_projections(block()) == 3


@torch.no_grad()
def test_parts_are_right_in_any_order_and_for_any_input() -> None:
    layers = [nn.Linear(8, n) for n in (8, 4, 2)]
    merged = MergedLinear(layers)
    parts = [MergedPart(merged, index) for index in range(3)]
    x, y = torch.randn(2, 5, 8)
    for index, value in [(0, x), (1, x), (2, x), (2, y), (0, x), (1, y), (1, x), (2, x), (0, y), (2, x)]:
        torch.testing.assert_close(parts[index](value), layers[index](value))


def test_a_copy_of_a_fused_model_is_its_own() -> None:
    model = make_model()
    assert merge_projections(model) == 10
    twin = copy.deepcopy(model)
    attention = twin.model.layers[0].self_attn
    assert attention.q_proj.merged is attention.k_proj.merged
    assert attention.q_proj.merged is not model.model.layers[0].self_attn.q_proj.merged


def test_the_library_itself_is_left_alone() -> None:
    from transformers.models.llama import modeling_llama

    before = modeling_llama.apply_rotary_pos_emb, modeling_llama.LlamaAttention.forward
    model = make_model()
    fuse(model)
    assert (modeling_llama.apply_rotary_pos_emb, modeling_llama.LlamaAttention.forward) == before
    assert model.model.layers[0].self_attn.forward.__func__ is not before[1]


def test_a_rotation_of_another_kind_stays(monkeypatch) -> None:
    from transformers.models.llama import modeling_llama

    def interleaved(q, k, cos, sin, unsqueeze_dim=1):
        return [x * cos[:, None] + x.roll(1, -1) * sin[:, None] for x in (q, k)]

    for other in (interleaved, lambda x, cos: x):
        monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", other)
        assert rotate_in_one(make_model()) == 0
