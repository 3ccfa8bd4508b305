"""A model's files: which are there, which are used, and how much memory they ask for."""

import json
import os
import struct
import subprocess
import sys

import pytest
import torch
from random_llama import make_config, make_model, save
from transformers import LlamaForCausalLM

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.files import SPARE, ModelFiles, fetch, find_cached, why_unusable
from pytest_kernelllm.models.local.load import LoadOptions, load_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def cached(tmp_path, monkeypatch, llama):
    """A snapshot as huggingface_hub's cache has it, under ``owner/tiny``."""
    home = tmp_path / "home"
    repository = home / "hub" / "models--owner--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for path in llama.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())
    from huggingface_hub import constants

    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))  # read when it was imported
    return snapshot


def write_header(path, tensors, *, size=None):
    """A safetensors file without its data: as large as the header says, and empty on disk."""
    offset, header = 0, {}
    for name, (dtype, width, shape) in tensors.items():
        count = width
        for length in shape:
            count *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset if size is None else size)


# ---------------------------------------------------------------------- what lies in the cache


def test_a_complete_snapshot_is_found_by_name_and_by_commit(cached):
    for revision in ("", "main", COMMIT):
        found = find_cached("owner/tiny", revision)
        assert found == ModelFiles(cached, COMMIT)


def test_another_revision_is_not_taken_for_it(cached):
    assert find_cached("owner/tiny", "f" * 40) is None


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_snapshot_that_lacks_a_file_is_not_complete(cached, gone):
    (cached / gone).unlink()
    assert find_cached("owner/tiny", "") is None
    assert why_unusable("owner/tiny", "", "auto", "none", 1 << 40) == (
        "owner/tiny is not complete in the cache"
    )


def test_a_snapshot_that_lacks_a_shard_of_its_index_is_not_complete(cached):
    (cached / "model.safetensors").rename(cached / "model-00001-of-00002.safetensors")
    assert find_cached("owner/tiny", "") is None  # nor without the index
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = cached / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert find_cached("owner/tiny", "") is None
    (cached / "model-00002-of-00002.safetensors").write_bytes(b"")
    assert find_cached("owner/tiny", "") is not None
    index.write_text('{"weight_map": ')
    assert find_cached("owner/tiny", "") is None


def test_a_model_fits_if_its_weights_and_some_more_are_free(cached):
    needed = ModelFiles(cached, "").weight_bytes("auto", "none") + SPARE
    assert why_unusable("owner/tiny", "", "auto", "none", needed) == ""
    assert why_unusable("owner/tiny", "", "auto", "none", needed - 1) == (
        "owner/tiny needs 1.0 GiB of GPU memory and 1.0 are free"
    )


def test_what_is_not_cached_is_known_without_importing_torch_or_huggingface_hub(tmp_path):
    script = """
import sys
from pytest_kernelllm.models.local.files import why_unusable
print(why_unusable("owner/none", "", "auto", "none", 1 << 40))
assert not {"torch", "transformers"} & set(sys.modules), sorted(sys.modules)
"""
    for variables in (
        {"HF_HOME": str(tmp_path)},
        {"XDG_CACHE_HOME": str(tmp_path)},
        {"HF_HUB_CACHE": str(tmp_path)},
    ):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={name: value for name, value in os.environ.items() if not name.startswith("HF_")} | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "owner/none is not in the cache\n"), done.stderr


# ---------------------------------------------------------------------- folders


def test_a_folder_is_a_model_named_by_its_contents(llama, tmp_path, monkeypatch):
    first = find_cached(str(llama), "")
    assert first == find_cached(str(llama), "ignored") == fetch(str(llama), "", print)
    other = save(tmp_path / "llama", seed=1)
    assert find_cached(str(other), "").commit != first.commit
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_cached("~/llama", "").folder == other


def test_pickled_weights_are_refused(tmp_path):
    model = make_model()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(GenerateError, match=r"holds no \*\.safetensors file; other weights are pickles"):
        load_model(ModelFiles(tmp_path, ""), LoadOptions(device_map="cpu"), None)
    assert "holds no *.safetensors file" in why_unusable(str(tmp_path), "", "auto", "none", 1 << 40)


# ---------------------------------------------------------------------- how much memory


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
def test_the_estimated_memory_is_what_the_weights_take(tmp_path, stored, tied):
    files = ModelFiles(save(tmp_path, dtype=stored, tie_word_embeddings=tied), "")
    for dtype in ("auto", "float32", "bfloat16", "float16"):
        expected = "auto" if dtype == "auto" else getattr(torch, dtype)
        model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=expected)
        took = sum(p.numel() * p.itemsize for p in model.parameters())
        assert files.weight_bytes(dtype, "none") == took


def test_weights_stored_wider_than_the_config_says_take_what_the_config_says(tmp_path):
    folder = save(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    model = LlamaForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.bfloat16
    took = sum(p.numel() * p.itemsize for p in model.parameters())
    assert ModelFiles(folder, "").weight_bytes("auto", "none") == took


def test_whole_numbers_are_not_converted(tmp_path):
    write_header(tmp_path / "model.safetensors", {"w": ("F32", 4, [10, 10]), "n": ("I64", 8, [5])})
    assert ModelFiles(tmp_path, "").weight_bytes("bfloat16", "none") == 200 + 40


def test_quantised_weights_take_less(tmp_path):
    write_header(tmp_path / "model.safetensors", {"w": ("BF16", 2, [64, 64]), "norm": ("BF16", 2, [64])})
    files = ModelFiles(tmp_path, "")
    sizes = [files.weight_bytes("auto", kind) for kind in ("none", "8bit", "4bit")]
    assert sizes == [2 * 4096 + 128, 4096 + 128, 2304 + 128]


def test_weights_that_lie_there_twice_count_once(tmp_path):
    write_header(tmp_path / "consolidated.safetensors", {"w": ("F32", 4, [100])})
    write_header(tmp_path / "model-00001-of-00001.safetensors", {"w": ("F32", 4, [100])})
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert ModelFiles(tmp_path, "").weight_bytes("auto", "none") == 400


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{}", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_file_that_is_no_safetensors_is_named(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(
        GenerateError, match=r"model\.safetensors cannot be read as safetensors \(.*\): delete"
    ):
        ModelFiles(tmp_path, "").weight_bytes("auto", "none")


def test_a_file_that_is_cut_off_is_named_before_it_is_loaded(tmp_path):
    folder = save(tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        GenerateError, match=r"model\.safetensors cannot be read as safetensors \(.*ncomplete.*\): delete"
    ):
        load_model(ModelFiles(folder, ""), LoadOptions(device_map="cpu"), None)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(tmp_path):
    make_config().save_pretrained(tmp_path)
    write_header(tmp_path / "model.safetensors", {"w": ("BF16", 2, [1 << 20, 1 << 21])}, size=None)
    with pytest.raises(
        GenerateError, match=r"needs 8193\.0 GiB of memory and [\d.]+ GiB are free: free some"
    ):
        load_model(ModelFiles(tmp_path, ""), LoadOptions(device_map="cpu"), None)


# ---------------------------------------------------------------------- a script that is only read


def test_the_models_own_script_is_read_and_not_run(llama, tmp_path):
    assert ModelFiles(llama, "").template_script() is None
    script = f"open({str(tmp_path / 'ran')!r}, 'w')\nPROMPT_TEMPLATE = 'Now: {{}}'\n"
    (tmp_path / "kernelllm.py").write_text(script)
    assert ModelFiles(tmp_path, "").template_script() == script
    assert not (tmp_path / "ran").exists()
