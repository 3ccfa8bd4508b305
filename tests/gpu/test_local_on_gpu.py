"""A local model on the GPU: the same text with a captured step, its attention, and its memory."""

import copy
import json
import struct

import pytest
import torch
from random_llama import make_config, make_model, save
from torch.nn import functional

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.attention import SPLIT
from pytest_kernelllm.models.local.decode import DecodeJob, Decoder
from pytest_kernelllm.models.local.draw import uniforms
from pytest_kernelllm.models.local.files import ModelFiles
from pytest_kernelllm.models.local.load import LoadOptions, load_model
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.local.norms import replace_norms
from pytest_kernelllm.models.local.split_attention import split_attention
from pytest_kernelllm.models.protocol import Sampling

SIZES = {
    "vocab_size": 1024,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 2048,
    "eos_token_id": None,
    "initializer_range": 0.1,
}
NEW = 60


@pytest.fixture(scope="module")
def llama():
    return make_model(**SIZES).cuda()


def written(model, sampling, **options):
    prompts = [tuple(range(2, 2 + length)) for length in (5, 300, 64)]
    jobs = [DecodeJob(p, uniforms(0, str(p), i, NEW)) for p in prompts for i in range(3)]
    decoder = Decoder(model, sampling, frozenset(range(8)), rows=4, length=300 + NEW, **options)
    last = {state.job: state for state in decoder.run(jobs, lambda tokens: None)}
    return [(last[i].tokens, last[i].finish) for i in range(len(jobs))]


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_captured_step_writes_what_an_eager_one_does(llama, temperature):
    sampling = Sampling(temperature=temperature, max_new_tokens=NEW)
    expected = written(llama, sampling)
    assert written(llama, sampling, graph=True, behind=True, chunk=8) == expected
    assert written(llama, sampling, behind=True, chunk=4) == expected


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_fewer_kernels_write_the_same(llama, temperature):
    sampling = Sampling(temperature=temperature, max_new_tokens=NEW)
    expected = written(llama, sampling)
    fused = copy.deepcopy(llama)
    replace_norms(fused)
    assert written(fused, sampling, graph=True, behind=True, chunk=8) == expected


@pytest.mark.parametrize("group", [1, 4, 7])
def test_split_attention_in_bfloat16_is_as_near_to_float64_as_masked_attention_is(group):
    torch.manual_seed(0)
    rows, heads, length, width = 6, 2, 3 * SPLIT, 128
    query = torch.randn(rows, heads, group, width, device="cuda", dtype=torch.bfloat16)
    key, value = torch.randn(2, rows, heads, length, width, device="cuda", dtype=torch.bfloat16)
    lengths = torch.tensor([1, 63, SPLIT, SPLIT + 1, length - 1, length], device="cuda")
    there = torch.arange(length, device="cuda") < lengths[:, None, None, None]
    masked = functional.scaled_dot_product_attention
    exact = masked(query.double(), key.double(), value.double(), attn_mask=there)
    bound = 2 * (masked(query, key, value, attn_mask=there) - exact).abs().max() + 1e-3
    beyond = ~there.mT
    got = split_attention(
        query,
        key.masked_fill(beyond, float("nan")),
        value.masked_fill(beyond, float("nan")),
        lengths,
        width**-0.5,
        SPLIT,
    )
    assert (got - exact).abs().max() <= bound


def allocated():
    """Bytes of live tensors: cuBLAS keeps 32 MiB of its own for every stream that multiplied matrices."""
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


def test_a_released_model_leaves_nothing_on_the_gpu(tmp_path):
    model = LocalModel(str(save(tmp_path, dtype=torch.bfloat16, **SIZES | {"vocab_size": 258})))
    before = allocated()
    first = "".join(model.stream("x = 5", Sampling(max_new_tokens=20)))
    assert allocated() > before
    model.release()
    assert allocated() <= before
    assert "".join(model.stream("x = 5", Sampling(max_new_tokens=20))) == first
    model.release()


def test_a_model_that_is_too_large_is_refused_with_what_it_needs_and_what_is_free(tmp_path):
    make_config(**SIZES).save_pretrained(tmp_path)
    header = {"w": {"dtype": "BF16", "shape": [1 << 20, 1 << 21], "data_offsets": [0, 1 << 42]}}
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + (1 << 42))
    for place in ("auto", "cuda:0"):
        with pytest.raises(
            GenerateError, match=r"needs 4097\.0 GiB of GPU memory and [\d., ]+ GiB are free: free some"
        ):
            load_model(ModelFiles(tmp_path, ""), LoadOptions(dtype="bfloat16", device_map=place), None)
