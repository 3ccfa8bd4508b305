"""Classes that nobody here wrote, marked at small sizes: layers and losses of PyTorch and of transformers."""

import torch
from torch import nn
from transformers import (
    BertConfig,
    ConvNextConfig,
    FalconConfig,
    LlamaConfig,
    MixtralConfig,
    PhiConfig,
    Qwen2Config,
    T5Config,
    ViTConfig,
)
from transformers.activations import GELUActivation
from transformers.models.bert.modeling_bert import BertEmbeddings, BertPredictionHeadTransform
from transformers.models.convnext.modeling_convnext import ConvNextLayer, ConvNextLayerNorm
from transformers.models.falcon.modeling_falcon import FalconMLP
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated
from transformers.models.mixtral.modeling_mixtral import MixtralExperts
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.phi.modeling_phi import PhiMLP
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.squeezebert.modeling_squeezebert import MatMulWrapper
from transformers.models.t5.modeling_t5 import T5LayerFF
from transformers.models.vit.modeling_vit import ViTPatchEmbeddings

from pytest_kernelllm import triton_candidate

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}


def rows(n=6):
    return torch.randn(n, 32)


def pair(n=6):
    return torch.randn(n, 32), torch.randn(n, 32)


def sentences(n=3):
    return torch.randn(n, 5, 32)


def images(n=2):
    return torch.randn(n, 4, 8, 8)


def signs(n=6):
    return torch.randn(n, 32), torch.randn(n, 32), torch.randint(2, (n,)) * 2.0 - 1.0


# --- PyTorch

triton_candidate(nn.RMSNorm, inputs=rows, init=(32,), dtypes=("float32", "bfloat16"))
triton_candidate(nn.GroupNorm, inputs=images, init={"num_groups": 2, "num_channels": 4})
triton_candidate(nn.BatchNorm2d, inputs=images, init=(4,))
triton_candidate(nn.GELU, inputs=rows, init={"approximate": "tanh"})
triton_candidate(nn.CosineEmbeddingLoss, inputs=signs, init={"margin": 0.1})

# --- transformers: activations and normalisations

triton_candidate(GELUActivation, inputs=rows, init=(True,))
triton_candidate(Qwen2RMSNorm, inputs=rows, init={"hidden_size": 32, "eps": 1e-5}, dtypes=("bfloat16",))
triton_candidate(MambaRMSNormGated, inputs=pair, init=(32, 8))
triton_candidate(
    ConvNextLayerNorm, inputs=images, init={"normalized_shape": 4, "data_format": "channels_first"}
)


# --- transformers: blocks built from a configuration


def with_config(config, **more):
    """A callable that makes a fresh configuration at every call."""
    return lambda: (config(**{**SMALL, **more}),)


triton_candidate(Qwen2MLP, inputs=rows, init=with_config(Qwen2Config), dtypes=("float16",))
triton_candidate(PhiMLP, inputs=rows, init=with_config(PhiConfig, hidden_act="gelu_10"))
triton_candidate(FalconMLP, inputs=rows, init=with_config(FalconConfig, ffn_hidden_size=48))
triton_candidate(
    BertPredictionHeadTransform, inputs=rows, init=with_config(BertConfig, hidden_act="gelu_new")
)


def tokens(n=3):
    return {"input_ids": torch.randint(50, (n, 7))}


triton_candidate(
    BertEmbeddings, inputs=tokens, init=with_config(BertConfig, vocab_size=50, max_position_embeddings=16)
)


def routed(n=6):
    return torch.randn(n, 32), torch.randint(4, (n, 2)), torch.rand(n, 2)


triton_candidate(MixtralExperts, inputs=routed, init=with_config(MixtralConfig, num_local_experts=4))


def t5():
    return (T5Config(d_model=32, d_ff=48, feed_forward_proj="gated-gelu"),)


triton_candidate(T5LayerFF, inputs=sentences, init=t5)


def patches():
    return (ViTConfig(image_size=8, patch_size=4, num_channels=4, hidden_size=32),)


triton_candidate(ViTPatchEmbeddings, inputs=images, init=patches)


def convnext():
    return (ConvNextConfig(hidden_act="gelu"), 4)


triton_candidate(ConvNextLayer, inputs=images, init=convnext)


def small_llama():
    return (LlamaConfig(**SMALL),)


def positions(batch=2, seq=6):
    return torch.randn(batch, seq, 8), torch.randint(64, (batch, seq))


triton_candidate(LlamaRotaryEmbedding, inputs=positions, init=small_llama)


def matrices():
    return {"mat2": torch.randn(5, 6), "mat1": torch.randn(4, 5)}


def mask():
    return torch.ones(2, 6, dtype=torch.long)


triton_candidate(MatMulWrapper, inputs=matrices)
triton_candidate(OPTLearnedPositionalEmbedding, inputs=mask, init=(16, 8))
