"""Models at production sizes with random weights in bfloat16, each as its library makes it, for ``kernelllm optimize``.

Each function returns ``(model, example)``. Language models have eight layers and a small vocabulary, so that their layers
count and not their heads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

TOKENS, CACHED, LONGEST = 2048, 1024, 2048
"""Tokens of a prompt; those that a cache holds before a decoding step, and may hold."""
IMAGES = 32

LANGUAGE = {
    "Qwen3": {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "head_dim": 128},
    "Llama": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32},
    "Mixtral": {
        "hidden_size": 2048,
        "intermediate_size": 7168,
        "num_attention_heads": 16,
        "num_local_experts": 8,
    },
    "Gemma3": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
    },
}
"""Of Qwen3-4B, Llama-3.1-8B, half a Mixtral-8x7B, and Gemma-3-4B."""

Example = Callable[[], Any]


def _bfloat16(model: nn.Module) -> nn.Module:
    return model.to(torch.bfloat16).eval()


def _language(name: str) -> tuple[Any, Any]:
    """A model and its configuration."""
    import transformers

    config_name = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    sizes = {"num_key_value_heads": 8, "num_hidden_layers": 8, "vocab_size": 32000, **LANGUAGE[name]}
    config = getattr(transformers, config_name)(attn_implementation="sdpa", **sizes)
    return _bfloat16(getattr(transformers, f"{name}ForCausalLM")(config)), config


def _prompt(name: str) -> tuple[nn.Module, Example]:
    model, _ = _language(name)
    tokens = torch.randint(3, 32000, (1, TOKENS))
    return model, lambda: model(tokens, use_cache=False, logits_to_keep=1)


def _step(name: str, batch: int) -> tuple[nn.Module, Example]:
    """One decoding step into a static cache, which each call rewinds."""
    from transformers import StaticCache

    model, config = _language(name)
    cache = StaticCache(config=config, max_cache_len=LONGEST)
    prompt, token = torch.randint(3, 32000, (batch, CACHED)), torch.randint(3, 32000, (batch, 1))
    position = torch.full((batch, 1), CACHED)
    with torch.no_grad():
        model(prompt, past_key_values=cache, logits_to_keep=1)

    def step() -> Any:
        for layer in cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if isinstance(length, torch.Tensor):
                length.fill_(CACHED)
        return model(token, past_key_values=cache, position_ids=position)

    return model, step


def qwen3() -> tuple[nn.Module, Example]:
    return _prompt("Qwen3")


def qwen3_decode() -> tuple[nn.Module, Example]:
    return _step("Qwen3", 1)


def gemma3() -> tuple[nn.Module, Example]:
    return _prompt("Gemma3")


def llama3() -> tuple[nn.Module, Example]:
    return _prompt("Llama")


def llama3_decode() -> tuple[nn.Module, Example]:
    return _step("Llama", 32)


def mixtral() -> tuple[nn.Module, Example]:
    return _prompt("Mixtral")


def modernbert() -> tuple[nn.Module, Example]:
    from transformers import ModernBertConfig, ModernBertModel

    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 2624,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    }
    model = _bfloat16(ModernBertModel(ModernBertConfig(attn_implementation="sdpa", **sizes)))
    tokens = torch.randint(3, 50000, (16, 512))
    return model, lambda: model(tokens)


def vit() -> tuple[nn.Module, Example]:
    from transformers import ViTConfig, ViTModel

    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    }
    return _of_images(ViTModel(ViTConfig(attn_implementation="sdpa", **sizes)))


def swin() -> tuple[nn.Module, Example]:
    if importlib.util.find_spec("timm"):
        return _of_images(importlib.import_module("timm").create_model("swin_base_patch4_window7_224"))
    from transformers import SwinConfig, SwinModel

    return _of_images(SwinModel(SwinConfig(embed_dim=128, depths=[2, 2, 18, 2], num_heads=[4, 8, 16, 32])))


def convnext() -> tuple[nn.Module, Example]:
    if importlib.util.find_spec("timm"):
        return _of_images(importlib.import_module("timm").create_model("convnext_base"))
    from transformers import ConvNextConfig, ConvNextModel

    return _of_images(ConvNextModel(ConvNextConfig(hidden_sizes=[128, 256, 512, 1024], depths=[3, 3, 27, 3])))


def _of_images(model: nn.Module) -> tuple[nn.Module, Example]:
    model = _bfloat16(model)
    images = torch.randn(IMAGES, 3, 224, 224, dtype=torch.bfloat16)
    return model, lambda: model(images)


def whisper() -> tuple[nn.Module, Example]:
    from transformers import WhisperConfig, WhisperModel

    sizes = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120}
    sizes |= {"decoder_layers": 1, "decoder_attention_heads": 20}
    config = WhisperConfig(num_mel_bins=128, attn_implementation="sdpa", **sizes)
    model = _bfloat16(WhisperModel(config).encoder)
    sound = torch.randn(4, 128, 3000, dtype=torch.bfloat16)
    return model, lambda: model(sound)


def unet() -> tuple[nn.Module, Example]:
    """The denoiser of Stable Diffusion 1.5, two images of 512 × 512 with guidance."""
    made = importlib.import_module("diffusers").UNet2DConditionModel
    model = _bfloat16(made(sample_size=64, cross_attention_dim=768, attention_head_dim=8))
    latents = torch.randn(4, 4, 64, 64, dtype=torch.bfloat16)
    text = torch.randn(4, 77, 768, dtype=torch.bfloat16)
    time = torch.full((4,), 500)
    return model, lambda: model(latents, time, text, return_dict=False)


NEEDS = {"unet": "diffusers"}
"""The package that a model comes from, where that may be missing."""
NAMES = (
    *("qwen3", "qwen3_decode", "gemma3", "llama3", "llama3_decode", "mixtral"),
    *("modernbert", "vit", "swin", "convnext", "whisper", "unet"),
)
