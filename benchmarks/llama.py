"""A Llama with random weights, and its modules marked, at sizes from the command line."""

from __future__ import annotations

import argparse

from transformers import LlamaConfig

MARKED = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from pytest_kernelllm import triton_candidate


def hidden_states(batch={batch}, seq={seq}):
    return torch.randn(batch, seq, {hidden})


def config():
    return (LlamaConfig(hidden_size={hidden}, intermediate_size={intermediate}),)


COMMON = {{
    "inputs": hidden_states,
    "dtypes": ("{dtype}",),
    "dims": {{"batch": (1, {batch}), "seq": (1, {seq})}},
    "backward": {training},
    "training": {training},
}}
triton_candidate(LlamaRMSNorm, init=({hidden},), **COMMON)
triton_candidate(LlamaMLP, init=config, **COMMON)
"""
"""A file that marks both modules; to be formatted with the options, ``seq`` and ``training``."""

LAYER = """

import inspect

from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def layer():
    return (
        LlamaConfig(
            hidden_size={hidden},
            intermediate_size={intermediate},
            num_attention_heads={heads},
            num_key_value_heads={kv_heads},
            num_hidden_layers={layers},
            vocab_size={vocabulary},
            attn_implementation="sdpa",
        ),
        0,
    )


def call(mask=None):
    angles = torch.randn(1, {seq}, {hidden} // {heads})
    named = inspect.signature(LlamaDecoderLayer.forward).parameters
    cache = "cache" if "cache" in named else "past_key_values"  # renamed in transformers 5.24
    return (hidden_states(),), {{
        "attention_mask": mask,
        "position_ids": torch.arange({seq})[None],
        cache: None,
        "use_cache": False,
        "position_embeddings": (angles.cos(), angles.sin()),
    }}


def recorded():
    return call(torch.ones({seq}, {seq}, dtype=torch.bool).tril()[None, None])


triton_candidate(
    LlamaDecoderLayer,
    init=layer,
    inputs={{"default": call, "recorded": recorded}},
    dtypes=("{dtype}",),
    unread=("self_attn.layer_idx",),
)
"""
"""What the file needs to mark whole layers, too, as the model calls them without a cache: also while a CUDA graph is recorded,
when it cannot find out that there is nothing to mask and so gives every layer a mask."""


def llama_config(options: argparse.Namespace) -> LlamaConfig:
    """A Llama of the sizes in the options."""
    return LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        num_hidden_layers=options.layers,
    )
