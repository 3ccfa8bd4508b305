"""Small models as they come from their libraries, with random weights: a factory by name for each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import transformers as t

Factory = Callable[[], Any]

_ENCODER = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2}
_TEXT = {"vocab_size": 64, **_ENCODER}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_ROUTED = {**_GROUPED, "head_dim": 16}
_IMAGE = {**_ENCODER, "image_size": 32, "patch_size": 8}


def tokens(batch: int = 2, length: int = 16) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(64, (batch, length))}


def _text(cls: Any, config: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> Factory:
    return lambda: (cls(config(**settings)).eval().to(dtype), tokens())


def _image(cls: Any, config: Any, size: int, **settings: Any) -> Factory:
    return lambda: (cls(config(**settings)).eval(), {"pixel_values": torch.randn(2, 3, size, size)})


def _t5() -> Any:
    config = t.T5Config(vocab_size=64, d_model=64, d_kv=16, d_ff=96, num_heads=4, num_layers=2)
    return t.T5Model(config).eval(), {**tokens(), "decoder_input_ids": torch.randint(64, (2, 8))}


def _whisper() -> Any:
    config = t.WhisperConfig(
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        max_source_positions=100,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    inputs = {"input_features": torch.randn(1, 80, 200), "decoder_input_ids": torch.randint(50, (1, 5))}
    return t.WhisperModel(config).eval(), inputs


def _clip() -> Any:
    text = {**_TEXT, "eos_token_id": 2}
    config = t.CLIPConfig(text_config=text, vision_config=_IMAGE, projection_dim=32)
    return t.CLIPModel(config).eval(), {**tokens(), "pixel_values": torch.randn(2, 3, 32, 32)}


def _wav2vec2() -> Any:
    config = t.Wav2Vec2Config(
        **_TEXT,
        conv_dim=[32, 32],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return t.Wav2Vec2Model(config).eval(), {"input_values": torch.randn(2, 800)}


TRANSFORMERS: dict[str, Factory] = {
    "llama": _text(t.LlamaForCausalLM, t.LlamaConfig, **_GROUPED),
    "qwen3": _text(t.Qwen3ForCausalLM, t.Qwen3Config, **_ROUTED),
    "gemma3": _text(t.Gemma3ForCausalLM, t.Gemma3TextConfig, **_ROUTED),
    "phi3": _text(t.Phi3ForCausalLM, t.Phi3Config, pad_token_id=0, **_GROUPED),
    # A product of groups in float32 has no form without data.
    "mixtral": _text(t.MixtralForCausalLM, t.MixtralConfig, torch.bfloat16, num_local_experts=4, **_GROUPED),
    "qwen3_moe": _text(
        t.Qwen3MoeForCausalLM,
        t.Qwen3MoeConfig,
        torch.bfloat16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        **_ROUTED,
    ),
    "gpt_oss": _text(t.GptOssForCausalLM, t.GptOssConfig, torch.bfloat16, num_local_experts=4, **_ROUTED),
    "deepseek_v3": _text(
        t.DeepseekV3ForCausalLM,
        t.DeepseekV3Config,
        torch.bfloat16,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        first_k_dense_replace=1,
        **_TEXT,
    ),
    "gpt2": _text(t.GPT2LMHeadModel, t.GPT2Config, vocab_size=64, n_embd=64, n_layer=2, n_head=4),
    "mamba": _text(t.MambaForCausalLM, t.MambaConfig, vocab_size=64, hidden_size=64, num_hidden_layers=2),
    "bert": _text(t.BertModel, t.BertConfig, **_TEXT),
    "modernbert": _text(t.ModernBertModel, t.ModernBertConfig, pad_token_id=0, **_TEXT),
    "xlm_roberta": _text(t.XLMRobertaModel, t.XLMRobertaConfig, **_TEXT),
    "deberta_v2": _text(
        t.DebertaV2Model, t.DebertaV2Config, relative_attention=True, pos_att_type=["p2c", "c2p"], **_TEXT
    ),
    "t5": _t5,
    "whisper": _whisper,
    "clip": _clip,
    "wav2vec2": _wav2vec2,
    "vit": _image(t.ViTModel, t.ViTConfig, 32, **_IMAGE),
    "dinov2": _image(t.Dinov2Model, t.Dinov2Config, 32, **_IMAGE),
    "swin": _image(
        t.SwinModel,
        t.SwinConfig,
        64,
        image_size=64,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "convnext": _image(
        t.ConvNextModel, t.ConvNextConfig, 64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1]
    ),
    "segformer": _image(
        t.SegformerModel, t.SegformerConfig, 64, hidden_sizes=[16, 32, 40, 64], depths=[1, 1, 1, 1]
    ),
}


def _timm(name: str, **settings: Any) -> Factory:
    def make() -> Any:
        model = importlib.import_module("timm").create_model(name, pretrained=False, **settings)
        return model.eval(), torch.randn(2, 3, 64, 64)

    return make


TIMM: dict[str, Factory] = {
    "timm_swin": _timm(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=4,
        depths=(2, 2),
        num_heads=(2, 4),
        embed_dim=16,
    ),
    "timm_vit": _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    "timm_convnext": _timm("convnext_atto"),
    "timm_efficientnet": _timm("efficientnet_b0"),
    "timm_resnet": _timm("resnet18"),
    "timm_mixer": _timm("mixer_s32_224", img_size=64),
    "timm_coatnet": _timm("coatnet_pico_rw_224", img_size=64),
}


def _diffusers(name: str, settings: dict[str, Any], inputs: Callable[[], Any]) -> Factory:
    return lambda: (getattr(importlib.import_module("diffusers"), name)(**settings).eval(), inputs())


DIFFUSERS: dict[str, Factory] = {
    "unet": _diffusers(
        "UNet2DConditionModel",
        {
            "sample_size": 16,
            "block_out_channels": (32, 64),
            "layers_per_block": 1,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
            "cross_attention_dim": 32,
            "attention_head_dim": 8,
        },
        lambda: {
            "sample": torch.randn(2, 4, 16, 16),
            "timestep": torch.tensor([3, 4]),
            "encoder_hidden_states": torch.randn(2, 7, 32),
        },
    ),
    "dit": _diffusers(
        "DiTTransformer2DModel",
        {
            "num_attention_heads": 4,
            "attention_head_dim": 16,
            "in_channels": 4,
            "num_layers": 2,
            "sample_size": 16,
            "num_embeds_ada_norm": 10,
        },
        lambda: {
            "hidden_states": torch.randn(2, 4, 16, 16),
            "timestep": torch.tensor([3, 4]),
            "class_labels": torch.tensor([1, 2]),
        },
    ),
    "flux": _diffusers(
        "FluxTransformer2DModel",
        {
            "patch_size": 1,
            "in_channels": 16,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 4,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 32,
            "axes_dims_rope": (4, 4, 8),
        },
        lambda: {
            "hidden_states": torch.randn(2, 16, 16),
            "encoder_hidden_states": torch.randn(2, 7, 32),
            "pooled_projections": torch.randn(2, 32),
            "timestep": torch.tensor([0.3, 0.4]),
            "img_ids": torch.randn(16, 3),
            "txt_ids": torch.randn(7, 3),
        },
    ),
    "vae": _diffusers(
        "AutoencoderKL",
        {
            "block_out_channels": (32, 64),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "layers_per_block": 1,
            "sample_size": 16,
        },
        lambda: torch.randn(2, 3, 16, 16),
    ),
}

MODELS = {**TRANSFORMERS, **TIMM, **DIFFUSERS}


def installed() -> list[str]:
    """The models whose library is there."""
    names = [*TRANSFORMERS]
    for package, models in (("timm", TIMM), ("diffusers", DIFFUSERS)):
        try:
            importlib.import_module(package)
        except (ImportError, RuntimeError):  # it is built for another torch
            continue
        names += models
    return names


def _reachable(name: str, make: Factory) -> None:
    """Makes a factory an attribute of this module, by which a written marker imports it."""
    make.__module__, make.__name__, make.__qualname__ = __name__, f"make_{name}", f"make_{name}"
    globals()[f"make_{name}"] = make


for _name, _make in MODELS.items():
    _reachable(_name, _make)
