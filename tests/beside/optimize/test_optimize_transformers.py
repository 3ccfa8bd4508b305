"""A real model of transformers: its normalisations and feed-forward blocks are judged, replaced and given back."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kernelllm_judge.core.records import CandidateId
from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import explain
from pytest_kernelllm.session.session import open_session

MARKED = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from pytest_kernelllm import triton_candidate


def hidden_states(batch=2, seq=3):
    return torch.randn(batch, seq, 32)


def config():
    return (LlamaConfig(hidden_size=32, intermediate_size=48),)


SIZES = {"batch": (1, 2), "seq": (1, 8)}
triton_candidate(LlamaRMSNorm, inputs=hidden_states, init=(32,), dims=SIZES)
triton_candidate(LlamaMLP, inputs=hidden_states, init=config, dims=SIZES)
"""

ERROR = 16 * torch.finfo(torch.float32).eps
"""What the judge allows for rounding, as a share of the output's scale (docs/explanation/numerics.md)."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A project's store after both classes were judged, in Triton's interpreter."""
    path = tmp_path_factory.mktemp("project")
    (path / "marked.py").write_text(MARKED)
    settings = Settings(device="cpu", generator="inductor", samples=1)
    with open_session(path, settings) as session:
        for target in scan_file(path / "marked.py", path).targets:
            verdict = session.outcome(target, CandidateId("inductor")).verdict
            assert verdict is not None and verdict.accepted, verdict
    return path / ".kernelllm"


LAYER = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from pytest_kernelllm import triton_candidate


def layer():
    config = LlamaConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
                         attn_implementation="sdpa")
    return config, 0


def call(batch=2, seq=6):
    angles = torch.randn(1, seq, 8)
    return (torch.randn(batch, seq, 32),), {
        "attention_mask": None,
        "position_ids": torch.arange(seq)[None],
        "past_key_values": None,
        "use_cache": False,
        "position_embeddings": (angles.cos(), angles.sin()),
    }


triton_candidate(LlamaDecoderLayer, inputs=call, init=layer, unread=("self_attn.layer_idx",))
"""


@torch.no_grad()
def test_whole_layers_of_a_llama_run_kernels(tmp_path, llama) -> None:
    (tmp_path / "marked.py").write_text(LAYER)
    with open_session(tmp_path, Settings(device="cpu", generator="inductor", samples=1)) as session:
        [target] = scan_file(tmp_path / "marked.py", tmp_path).targets
        verdict = session.outcome(target, CandidateId("inductor")).verdict
        assert verdict is not None and verdict.accepted, verdict
    tokens = torch.randint(50, (2, 6))
    logits = llama(tokens, use_cache=False).logits
    report = optimize_model(llama, store=tmp_path / ".kernelllm")
    assert [each.path for each in report.replaced] == ["model.layers.0", "model.layers.1"]

    told = []

    def ask(module, args, kwargs):
        told.append(explain(module, *args, **kwargs))

    layers = [llama.get_submodule(each.path) for each in report.replaced]
    hooks = [layer.register_forward_pre_hook(ask, with_kwargs=True) for layer in layers]
    optimized = llama(tokens, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    assert len(told) == 2 and all("runs the kernel" in each for each in told), told
    assert not torch.equal(optimized, logits)  # another order of sums
    torch.testing.assert_close(optimized, logits, rtol=0, atol=10 * ERROR * float(logits.abs().max()))
    told.clear()
    with_cache = llama(tokens, use_cache=True)  # outside the domain: the original runs, and fills the cache
    torch.testing.assert_close(with_cache.logits, logits)
    assert with_cache.past_key_values.get_seq_length() == 6


@pytest.fixture
def llama(monkeypatch):
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=2,
            initializer_range=0.3,
        )
    ).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:  # ones would not show a kernel that ignores them
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def attributes(model):
    return [(path, type(m), {k: id(v) for k, v in vars(m).items()}) for path, m in model.named_modules()]


@torch.no_grad()
def test_a_llama_runs_kernels_with_the_same_outputs_and_is_given_back_as_it_was(store, llama) -> None:
    tokens = torch.randint(50, (2, 6))
    before, logits = attributes(llama), llama(tokens).logits
    report = optimize_model(llama, store=store)
    assert {each.cls for each in report.replaced} == {"LlamaRMSNorm", "LlamaMLP"}
    assert [each.path for each in report.replaced] == [
        "model.layers.0.mlp",
        "model.layers.0.input_layernorm",
        "model.layers.0.post_attention_layernorm",
        "model.layers.1.mlp",
        "model.layers.1.input_layernorm",
        "model.layers.1.post_attention_layernorm",
        "model.norm",
    ]

    seen = []

    def compare(module, args, out):
        assert "runs the kernel" in explain(module, *args)
        original = type(module).forward.__kernelllm_original__(module, *args)
        assert (out - original).abs().max() <= ERROR * original.abs().max()
        seen.append(module)

    hooks = [llama.get_submodule(each.path).register_forward_hook(compare) for each in report.replaced]
    optimized = llama(tokens).logits
    for hook in hooks:
        hook.remove()
    assert len(seen) == 7
    torch.testing.assert_close(optimized, logits, rtol=0, atol=10 * ERROR * float(logits.abs().max()))
    assert torch.equal(
        llama.generate(tokens, max_new_tokens=2, do_sample=False)[:, 6], logits[:, -1].argmax(-1)
    )

    report.restore()
    assert attributes(llama) == before
    assert torch.equal(llama(tokens).logits, logits)
