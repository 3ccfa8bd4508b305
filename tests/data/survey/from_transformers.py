"""Layers of transformers, as a user would mark them; built small."""

import torch
from transformers import activations
from transformers.models.bert import modeling_bert as bert
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.dinov2 import modeling_dinov2 as dinov2
from transformers.models.gemma import modeling_gemma as gemma
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gpt2 import modeling_gpt2 as gpt2
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.mixtral import modeling_mixtral as mixtral
from transformers.models.opt import modeling_opt as opt
from transformers.models.resnet import modeling_resnet as resnet
from transformers.models.segformer import modeling_segformer as segformer
from transformers.models.swin import modeling_swin as swin
from transformers.models.t5 import modeling_t5 as t5
from transformers.models.vit import modeling_vit as vit
from transformers.models.whisper import modeling_whisper as whisper

from pytest_kernelllm import triton_candidate

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1}
DECODER = {**SMALL, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32, "max_position_embeddings": 32}


def config(module, name, **values):
    """A configuration of a model, with PyTorch's own attention where it takes the choice."""
    made = getattr(module, name)(**values)
    made._attn_implementation = "sdpa"
    return made


def hidden():
    return torch.randn(2, 5, 16)


def tokens():
    return torch.randint(0, 32, (2, 5))


def images():
    return torch.randn(2, 8, 8, 8)


def pictures():
    return torch.randn(2, 3, 16, 16)


def and_positions():
    return torch.randn(2, 5, 16), torch.arange(5)[None]


def and_residual():
    return torch.randn(2, 5, 16), torch.randn(2, 5, 16)


# Activations
triton_candidate(activations.GELUActivation, inputs=hidden)
triton_candidate(activations.QuickGELUActivation, inputs=hidden)
triton_candidate(activations.LaplaceActivation, inputs=hidden)
triton_candidate(activations.ReLUSquaredActivation, inputs=hidden)

# Norms
triton_candidate(llama.LlamaRMSNorm, init=(16,), inputs=hidden)
triton_candidate(gemma.GemmaRMSNorm, init=(16,), inputs=hidden)
triton_candidate(t5.T5LayerNorm, init=(16,), inputs=hidden)
triton_candidate(cohere.CohereLayerNorm, init=(16,), inputs=hidden)
triton_candidate(llama4.Llama4TextL2Norm, inputs=hidden)

# Multilayer perceptrons
triton_candidate(llama.LlamaMLP, init=lambda: (config(llama, "LlamaConfig", **DECODER),), inputs=hidden)
triton_candidate(gemma2.Gemma2MLP, init=lambda: (config(gemma2, "Gemma2Config", **DECODER),), inputs=hidden)
triton_candidate(
    gpt2.GPT2MLP, init=lambda: (24, config(gpt2, "GPT2Config", n_embd=16, n_head=2)), inputs=hidden
)
triton_candidate(
    bloom.BloomMLP,
    init=lambda: (config(bloom, "BloomConfig", hidden_size=16, n_head=2),),
    inputs=and_residual,
)
triton_candidate(t5.T5LayerFF, init=lambda: (t5.T5Config(d_model=16, d_ff=24),), inputs=hidden)
triton_candidate(
    dinov2.Dinov2SwiGLUFFN,
    init=lambda: (dinov2.Dinov2Config(hidden_size=16, num_attention_heads=2),),
    inputs=hidden,
)
triton_candidate(
    bert.BertOutput,
    init=lambda: (bert.BertConfig(**SMALL),),
    inputs=lambda: (torch.randn(2, 5, 24), torch.randn(2, 5, 16)),
)
triton_candidate(bert.BertPooler, init=lambda: (bert.BertConfig(**SMALL),), inputs=hidden)

# Attention
triton_candidate(bert.BertSelfAttention, init=lambda: (config(bert, "BertConfig", **SMALL),), inputs=hidden)
triton_candidate(bert.BertLayer, init=lambda: (config(bert, "BertConfig", **SMALL),), inputs=hidden)
triton_candidate(
    gpt2.GPT2Block, init=lambda: (config(gpt2, "GPT2Config", n_embd=16, n_head=2),), inputs=hidden
)
triton_candidate(
    swin.SwinAttention,
    init=lambda: (config(swin, "SwinConfig", window_size=2), 16, 2, 2),
    inputs=lambda: torch.randn(8, 4, 16),
)

# Embeddings and positions
triton_candidate(
    llama.LlamaRotaryEmbedding, init=lambda: (llama.LlamaConfig(**DECODER),), inputs=and_positions
)
triton_candidate(
    gemma.GemmaTextScaledWordEmbedding,
    init={"num_embeddings": 32, "embedding_dim": 16, "padding_idx": 0, "embed_scale": 4.0},
    inputs=tokens,
)
triton_candidate(opt.OPTLearnedPositionalEmbedding, init=(16, 16), inputs=lambda: torch.ones(2, 5))
triton_candidate(whisper.WhisperPositionalEmbedding, init=(16, 16), inputs=tokens)
triton_candidate(
    vit.ViTPatchEmbeddings,
    init=lambda: (vit.ViTConfig(image_size=16, patch_size=4, hidden_size=16),),
    inputs=pictures,
)

# Routers and experts
triton_candidate(
    mixtral.MixtralTopKRouter,
    init=lambda: (mixtral.MixtralConfig(**DECODER, num_local_experts=4),),
    inputs=hidden,
)
triton_candidate(
    llama4.Llama4Router,
    init=lambda: (llama4.Llama4TextConfig(hidden_size=16, num_local_experts=4, intermediate_size=24),),
    inputs=lambda: torch.randn(10, 16),
)

# Convolutions
triton_candidate(resnet.ResNetBasicLayer, init=(8, 8), inputs=images)
triton_candidate(segformer.SegformerDepthWiseConv, init=(16,), inputs=lambda: (torch.randn(2, 16, 16), 4, 4))


def rotated():
    return torch.randn(2, 5, 16), torch.randn(1, 5, 8), torch.randn(1, 5, 8)


@triton_candidate(inputs=rotated)
class DecoderLayer(torch.nn.Module):
    """Llama's, with the rotary embedding as two arguments."""

    def __init__(self):
        super().__init__()
        self.layer = llama.LlamaDecoderLayer(config(llama, "LlamaConfig", **DECODER), 0)

    def forward(self, hidden_states, cos, sin):
        return self.layer(hidden_states, position_embeddings=(cos, sin))
