"""A tiny Llama with random weights and a real tokenizer of bytes. It knows nothing; its arithmetic is the real thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pytest_kernelllm.models.local import attention

BEGIN, END = "<|begin|>", "<|end|>"


def make_tokenizer(adds_begin: bool = True) -> PreTrainedTokenizerFast:
    """Every byte is a token; characters of several bytes are several tokens."""
    vocabulary = {
        sign: i for i, sign in enumerate([BEGIN, END, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, vocabulary[BEGIN])]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)


def make_config(**changed: Any) -> LlamaConfig:
    settings: dict[str, Any] = {
        "vocab_size": 258,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
        "initializer_range": 0.3,  # far from uniform, so that mistakes change what is written
    }
    return LlamaConfig(**settings | changed)


def make_model(seed: int = 0, **changed: Any) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = make_config(**changed)
    return LlamaForCausalLM._from_config(config, attn_implementation=attention.register()).eval()


def save(
    folder: Path,
    *,
    seed: int = 0,
    adds_begin: bool = True,
    dtype: torch.dtype = torch.float32,
    **changed: Any,
) -> Path:
    """A model folder as ``save_pretrained`` writes it."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(make_config(**changed))
    model.to(dtype).save_pretrained(folder)
    make_tokenizer(adds_begin).save_pretrained(folder)
    return folder
