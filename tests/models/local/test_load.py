"""Loading is safe, and says why where it cannot be done."""

import json
import sys

import pytest
import torch
from random_llama import make_config, save
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    MistralConfig,
    Phi3Config,
    Qwen3Config,
    T5Config,
)

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local import attention
from pytest_kernelllm.models.local.decode import DecodeJob, Decoder
from pytest_kernelllm.models.local.draw import uniforms
from pytest_kernelllm.models.local.files import ModelFiles
from pytest_kernelllm.models.local.load import LoadOptions, load_config, load_model, load_tokenizer
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.protocol import Sampling

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}


def load(folder, **options):
    return load_model(ModelFiles(folder, "0"), LoadOptions(**{"device_map": "cpu"} | options), None)


def test_a_model_is_loaded_onto_the_cpu_in_float32(tmp_path):
    loaded = load(save(tmp_path, dtype=torch.bfloat16))
    assert loaded.model.dtype == torch.float32 and not loaded.graph and not loaded.model.training
    assert loaded.model.config._attn_implementation == attention.NAME
    assert load(tmp_path, dtype="bfloat16").model.dtype == torch.bfloat16


def plant(folder, name, **entries):
    """Code beside the model that would leave a trace if it ran."""
    trace = folder / "ran"
    for module in ("configuration_evil", "modeling_evil", "tokenization_evil"):
        (folder / f"{module}.py").write_text(f"open({str(trace)!r}, 'w')\nclass Evil: pass\n")
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return trace


def test_a_model_that_needs_code_of_its_own_is_refused_and_the_code_not_run(tmp_path):
    names = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    trace = plant(save(tmp_path), "config.json", auto_map=names, model_type="evil")
    with pytest.raises(GenerateError, match="cannot be loaded: "):
        load(tmp_path)
    assert not trace.exists()


def test_code_beside_a_model_that_needs_none_is_left_alone(tmp_path):
    names = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    trace = plant(save(tmp_path), "config.json", auto_map=names)
    assert type(load(tmp_path).model).__name__ == "LlamaForCausalLM"
    assert not trace.exists()


def test_a_tokenizers_own_code_is_not_run(tmp_path):
    names = {"AutoTokenizer": ["tokenization_evil.Evil", "tokenization_evil.Evil"]}
    trace = plant(save(tmp_path), "tokenizer_config.json", auto_map=names, tokenizer_class="Evil")
    try:
        load_tokenizer(ModelFiles(tmp_path, "0"))
    except GenerateError as error:
        assert "cannot be loaded" in str(error)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_tokenizer_is_one_sentence(tmp_path, name):
    save(tmp_path)
    (tmp_path / name).write_text("{]")
    with pytest.raises(GenerateError, match=r"^The tokenizer in .* cannot be loaded: "):
        load_tokenizer(ModelFiles(tmp_path, "0"))


@pytest.mark.parametrize("text", [None, "{]", "[]", "{}", '{"model_type": 3}'])
def test_a_damaged_config_is_one_sentence(tmp_path, text):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(GenerateError, match="cannot be loaded: "):
        load_config(ModelFiles(tmp_path, "0"))


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    save(tmp_path, num_hidden_layers=2)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 3}))
    with pytest.raises(
        GenerateError, match=r"lacks 9 of the model's weights \(model\.layers\.2\..*download it again"
    ):
        load(tmp_path)


def test_tied_weights_are_not_missing(tmp_path):
    load(save(tmp_path, tie_word_embeddings=True))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (MistralConfig(**SMALL, sliding_window=16), "mistral with layers that do not see the whole text"),
        (Gemma2Config(**SMALL), "gemma2 with layers that do not see the whole text"),
        (
            Qwen3Config(**SMALL, use_sliding_window=True, sliding_window=8, max_window_layers=1),
            "qwen3 with layers that do not see the whole text",
        ),
        (BloomConfig(**SMALL), "bloom with attention of its own"),
        (T5Config(vocab_size=96, d_model=32), "t5 that does not continue text"),
        (
            make_config(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "llama whose positions depend on how long the other texts in its batch are",
        ),
    ],
    ids=["mistral", "gemma2", "qwen3", "bloom", "t5", "dynamic positions"],
)
def test_models_that_would_be_run_wrongly_are_refused(tmp_path, config, why):
    config.save_pretrained(tmp_path)
    with pytest.raises(GenerateError) as error:
        load(tmp_path)
    assert str(error.value) == (
        f"{tmp_path.name} is a {why}, which `local` does not support: serve it (vLLM, TGI, `transformers serve`) "
        "and set `endpoint`."
    )


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**SMALL, sliding_window=None),
        Qwen3Config(**SMALL),
        Phi3Config(**SMALL),
        make_config(
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        ),
    ],
    ids=["mistral", "qwen3", "phi3", "llama 3's positions"],
)
def test_models_of_other_makers_write_what_generate_writes(tmp_path, config):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    model = load(tmp_path).model
    prompt = tuple(range(3, 90))
    sampling = Sampling(temperature=0, max_new_tokens=20)
    decoder = Decoder(model, sampling, frozenset(), rows=1, length=len(prompt) + 20)
    job = DecodeJob(prompt, uniforms(0, "", 0, 20))
    *_, last = decoder.run([job], lambda tokens: None)
    model.set_attn_implementation("sdpa")
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, eos_token_id=-1
    )
    assert last.tokens == tuple(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize(("kind", "layer"), [("8bit", "Linear8bitLt"), ("4bit", "Linear4bit")])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_quantised_model_writes(tmp_path, kind, layer):
    model = LocalModel(str(save(tmp_path, hidden_size=128)), device_map="cpu", quantization=kind)
    assert "".join(model.stream("x = 5", Sampling(temperature=0, max_new_tokens=8)))
    assert {type(each).__name__ for each in model._loaded.model.model.layers[0].mlp.children()} >= {layer}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_map": "gpu"}, "device_map=gpu is not one of auto, cpu, cuda and cuda:NUMBER."),
        ({"device_map": "cuda:x"}, "device_map=cuda:x is not one of auto, cpu, cuda and cuda:NUMBER."),
        ({"quantization": "8bit"}, "quantization=8bit needs bitsandbytes: pip install bitsandbytes."),
        ({"device_map": "cuda:1"}, "device_map=cuda:1, but PyTorch sees no GPU."),
    ],
)
def test_invalid_load_options_are_one_sentence(tmp_path, monkeypatch, options, message):
    if "cuda:1" in message and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    save(tmp_path)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # as where it is not installed
    with pytest.raises(GenerateError) as error:
        load(tmp_path, **options)
    assert str(error.value) == message
