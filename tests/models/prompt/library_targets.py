"""Classes that nobody here wrote, marked at small sizes: layers and losses of PyTorch and of transformers."""

import torch
from torch import nn
from transformers import (
    BertConfig,
    CLIPVisionConfig,
    ConvNextConfig,
    FalconConfig,
    Gemma2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PhiConfig,
    Qwen2Config,
    SiglipVisionConfig,
    T5Config,
    ViTConfig,
)
from transformers.activations import AccurateGELUActivation, GELUActivation, MishActivation
from transformers.models.bert.modeling_bert import (
    BertEmbeddings,
    BertIntermediate,
    BertOutput,
    BertPooler,
    BertPredictionHeadTransform,
    BertSelfOutput,
)
from transformers.models.bloom.modeling_bloom import BloomGelu
from transformers.models.clip.modeling_clip import CLIPMLP
from transformers.models.convnext.modeling_convnext import ConvNextLayer, ConvNextLayerNorm
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RMSNorm
from transformers.models.falcon.modeling_falcon import FalconMLP
from transformers.models.gemma2.modeling_gemma2 import Gemma2MLP
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXMLP
from transformers.models.granite.modeling_granite import GraniteMLP
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated
from transformers.models.mistral.modeling_mistral import MistralMLP
from transformers.models.mixtral.modeling_mixtral import MixtralExperts, MixtralTopKRouter
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.phi.modeling_phi import PhiMLP
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.siglip.modeling_siglip import SiglipMLP
from transformers.models.squeezebert.modeling_squeezebert import MatMulWrapper
from transformers.models.t5.modeling_t5 import T5LayerFF
from transformers.models.vit.modeling_vit import ViTMLP, ViTPatchEmbeddings
from transformers.models.whisper.modeling_whisper import WhisperPositionalEmbedding

from pytest_kernelllm import triton_candidate

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}


def rows(n=6):
    return torch.randn(n, 32)


def pair(n=6):
    return torch.randn(n, 32), torch.randn(n, 32)


def wide(n=6):
    return torch.randn(n, 48)


def sentences(n=3):
    return torch.randn(n, 5, 32)


def images(n=2):
    return torch.randn(n, 4, 8, 8)


def triple(n=6):
    return torch.randn(n, 32), torch.randn(n, 32), torch.randn(n, 32)


def signs(n=6):
    return torch.randn(n, 32), torch.randn(n, 32), torch.randint(2, (n,)) * 2.0 - 1.0


# --- PyTorch

triton_candidate(nn.RMSNorm, inputs=rows, init=(32,), dtypes=("float32", "bfloat16"))
triton_candidate(nn.LayerNorm, inputs=rows, init=(32, 1e-3))
triton_candidate(nn.GroupNorm, inputs=images, init={"num_groups": 2, "num_channels": 4})
triton_candidate(nn.BatchNorm2d, inputs=images, init=(4,))
triton_candidate(nn.GELU, inputs=rows, init={"approximate": "tanh"})
triton_candidate(nn.Softplus, inputs=rows, init=(2.0,))
triton_candidate(nn.PReLU, inputs=rows)
triton_candidate(nn.GLU, inputs=rows)
triton_candidate(nn.Bilinear, inputs=pair, init=(32, 32, 5))
triton_candidate(nn.PixelShuffle, inputs=images, init=(2,))
triton_candidate(nn.LocalResponseNorm, inputs=images, init=(2,))
triton_candidate(nn.CosineSimilarity, inputs=pair, init={"dim": -1})
triton_candidate(nn.PairwiseDistance, inputs=pair)
triton_candidate(nn.HuberLoss, inputs=pair, init={"delta": 0.5})
triton_candidate(nn.SmoothL1Loss, inputs=pair)
triton_candidate(nn.KLDivLoss, inputs=pair, init={"reduction": "batchmean", "log_target": True})
triton_candidate(nn.CosineEmbeddingLoss, inputs=signs, init={"margin": 0.1})
triton_candidate(nn.TripletMarginLoss, inputs=triple)

# --- transformers: activations and normalisations

triton_candidate(GELUActivation, inputs=rows, init=(True,))
triton_candidate(AccurateGELUActivation, inputs=rows)
triton_candidate(MishActivation, inputs=rows)
triton_candidate(BloomGelu, inputs=rows)
triton_candidate(Qwen2RMSNorm, inputs=rows, init={"hidden_size": 32, "eps": 1e-5}, dtypes=("bfloat16",))
triton_candidate(DeepseekV3RMSNorm, inputs=rows, init=(32,))
triton_candidate(OlmoLayerNorm, inputs=rows, init=(32,))
triton_candidate(MambaRMSNormGated, inputs=pair, init=(32, 8))
triton_candidate(
    ConvNextLayerNorm, inputs=images, init={"normalized_shape": 4, "data_format": "channels_first"}
)


# --- transformers: blocks built from a configuration


def with_config(config, **more):
    """A callable that makes a fresh configuration at every call."""
    return lambda: (config(**{**SMALL, **more}),)


triton_candidate(MistralMLP, inputs=rows, init=with_config(MistralConfig))
triton_candidate(Qwen2MLP, inputs=rows, init=with_config(Qwen2Config), dtypes=("float16",))
triton_candidate(Gemma2MLP, inputs=rows, init=with_config(Gemma2Config))
triton_candidate(GraniteMLP, inputs=rows, init=with_config(GraniteConfig, mlp_bias=True))
triton_candidate(PhiMLP, inputs=rows, init=with_config(PhiConfig, hidden_act="gelu_10"))
triton_candidate(GPTNeoXMLP, inputs=rows, init=with_config(GPTNeoXConfig))
triton_candidate(FalconMLP, inputs=rows, init=with_config(FalconConfig, ffn_hidden_size=48))
triton_candidate(CLIPMLP, inputs=rows, init=with_config(CLIPVisionConfig))
triton_candidate(SiglipMLP, inputs=rows, init=with_config(SiglipVisionConfig))
triton_candidate(ViTMLP, inputs=rows, init=with_config(ViTConfig))
triton_candidate(BertIntermediate, inputs=rows, init=with_config(BertConfig))
triton_candidate(BertPooler, inputs=sentences, init=with_config(BertConfig))
triton_candidate(BertSelfOutput, inputs=pair, init=with_config(BertConfig))
triton_candidate(
    BertOutput, inputs=lambda: (torch.randn(6, 48), torch.randn(6, 32)), init=with_config(BertConfig)
)
triton_candidate(
    BertPredictionHeadTransform, inputs=rows, init=with_config(BertConfig, hidden_act="gelu_new")
)
triton_candidate(MixtralTopKRouter, inputs=rows, init=with_config(MixtralConfig, num_local_experts=8))


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
triton_candidate(WhisperPositionalEmbedding, inputs=lambda: torch.randint(9, (2, 6)), init=(16, 8))
