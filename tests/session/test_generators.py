"""Which generators the settings mean."""

import json
import struct
from dataclasses import replace

import pytest

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.files import SPARE
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.protocol import Sampling
from pytest_kernelllm.session.generators import NAMES, Surroundings, choose, language_model, sampling

GPU = {"gpu": "NVIDIA H200", "free": 100 << 30}


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without models."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def weights(tmp_path):
    """The folder of a model of 1,000 weights, as far as ``auto`` looks at it."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1000], "data_offsets": [0, 2000]}}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(2000)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def names(root, generator, around=None, **settings):
    chosen = choose(Settings(generator=generator, **settings), Surroundings(root, **around or {}))
    return [g.name for g in chosen.generators], chosen.why


# ---------------------------------------------------------------------- auto


def test_auto_takes_an_endpoint_where_one_is_set(nowhere):
    for around in ({}, GPU):
        assert names(nowhere, "auto", around, endpoint="http://localhost:1") == (
            ["endpoint"],
            "an endpoint is set",
        )


def test_auto_takes_inductor_without_a_gpu(nowhere, weights):
    assert names(nowhere, "auto", model=str(weights)) == (
        ["inductor"],
        "no endpoint is set, and there is no GPU for a local model",
    )


def test_auto_takes_inductor_where_the_model_would_have_to_be_fetched(nowhere):
    assert names(nowhere, "auto", GPU) == (
        ["inductor"],
        "no endpoint is set, and facebook/KernelLLM is not in the cache",
    )


def test_auto_takes_inductor_where_the_model_does_not_fit(nowhere, weights):
    around = {"gpu": "NVIDIA T4", "free": SPARE + 1999}
    assert names(nowhere, "auto", around, model=str(weights)) == (
        ["inductor"],
        f"no endpoint is set, and {weights} needs 1.0 GiB of GPU memory and 1.0 are free",
    )


def test_auto_takes_the_model_where_it_is_at_hand_and_fits(nowhere, weights):
    around = {"gpu": "NVIDIA T4", "free": SPARE + 2000}
    assert names(nowhere, "auto", around, model=str(weights)) == (
        ["local"],
        f"{weights} is in the cache and fits NVIDIA T4",
    )


# ---------------------------------------------------------------------- names


def test_generators_come_in_the_order_in_which_they_are_named(tmp_path):
    here = {"candidates_dir": ".", "endpoint": "http://localhost:1"}
    for spelled in ("files,inductor,local,endpoint", " endpoint, local ,,inductor,files"):
        wanted = [name.strip() for name in spelled.split(",") if name.strip()]
        assert names(tmp_path, spelled, **here) == (wanted, "")


def test_kernelllm_is_the_endpoint_if_one_is_set_else_local(tmp_path):
    assert names(tmp_path, "kernelllm")[0] == ["local"]
    assert names(tmp_path, "kernelllm", endpoint="http://localhost:1")[0] == ["endpoint"]


def test_a_generator_named_twice_works_once(nowhere):
    assert names(nowhere, "inductor,kernelllm,auto,local,inductor")[0] == ["inductor", "local"]
    assert names(nowhere, "auto,inductor") == (
        ["inductor"],
        "no endpoint is set, and there is no GPU for a local model",
    )


@pytest.mark.parametrize(
    ("generator", "said"),
    [
        ("", "No generator is named: set `generator` to one or more of "),
        (" , ", "No generator is named: set `generator` to one or more of "),
        ("indctor", "There is no generator `indctor`: `generator` takes "),
        ("files,Inductor", "There is no generator `Inductor`: `generator` takes "),
        ("endpoint", "The `endpoint` generator needs an address: set `endpoint`"),
        ("files", "The `files` generator needs a folder: set `candidates_dir`."),
    ],
)
def test_settings_that_name_no_generator_are_refused_in_a_sentence(tmp_path, generator, said):
    with pytest.raises(GenerateError) as error:
        names(tmp_path, generator)
    assert str(error.value).startswith(said)
    if "takes" in said or "No generator" in said:
        assert ", ".join(NAMES) in str(error.value)


def test_choosing_loads_nothing(tmp_path):
    (local,) = choose(
        Settings(generator="local", model="owner/none"), Surroundings(tmp_path, **GPU)
    ).generators
    assert local.batched and local.on_gpu


def test_only_a_local_model_on_the_gpu_keeps_others_from_timing(tmp_path):
    def on_gpu(around, **settings):
        (generator,) = choose(Settings(**settings), Surroundings(tmp_path, **around)).generators
        return generator.on_gpu

    assert on_gpu(GPU, generator="local")
    assert not on_gpu(GPU, generator="local", device_map="cpu")
    assert not on_gpu({}, generator="local")
    assert not on_gpu(GPU, generator="endpoint", endpoint="http://localhost:1")


def test_local_means_this_machine_also_where_an_endpoint_is_set(tmp_path):
    settings = Settings(generator="local", endpoint="http://localhost:1", model=str(tmp_path))
    (local,) = choose(settings, Surroundings(tmp_path)).generators
    assert local.identity().startswith("local ")
    assert isinstance(language_model(replace(settings, endpoint=""), print), LocalModel)
    assert not isinstance(language_model(settings, print), LocalModel)


# ---------------------------------------------------------------------- sampling


def test_presets_are_kernelllms_published_and_its_scripts():
    assert sampling(Settings()) == Sampling(1.0, 0.97, 0, 2048, 0)
    assert sampling(Settings(preset="script")) == Sampling(0.6, 0.95, 0, 2048, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 0.0), ("top_p", 0.5), ("top_k", 3), ("max_new_tokens", 7), ("seed", 9)],
)
def test_a_setting_takes_the_place_of_the_presets(name, value):
    for preset in ("published", "script"):
        wanted = replace(sampling(Settings(preset=preset)), **{name: value})
        assert sampling(Settings(preset=preset, **{name: value})) == wanted


def test_everything_that_changes_what_is_drawn_changes_the_identity(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    base = Settings(generator="local", model=str(tmp_path))
    changes = (
        {},
        {"preset": "script"},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"top_k": 5},
        {"max_new_tokens": 5},
        {"seed": 5},
        {"dtype": "float32"},
        {"quantization": "4bit"},
    )
    identities = {
        choose(replace(base, **change), Surroundings(tmp_path)).generators[0].identity() for change in changes
    }
    assert len(identities) == len(changes)


def test_sampling_out_of_range_is_refused_when_generators_are_chosen(tmp_path):
    with pytest.raises(
        GenerateError, match=r"^`top_p` cannot be 3\.0; it must be more than 0 and at most 1\.$"
    ):
        choose(Settings(generator="local", top_p=3.0), Surroundings(tmp_path))
