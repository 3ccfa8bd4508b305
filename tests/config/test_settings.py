"""Settings: from the command line, the environment and pyproject.toml, and their documentation."""

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from kernelllm_judge.core.errors import ConfigError
from pytest_kernelllm.config.options import FREQUENT, choices, options
from pytest_kernelllm.config.settings import Settings, assigned, load_settings, size_in_bytes

HINTS = get_type_hints(Settings)

EXAMPLES = {
    "paths": ("src tests", ["src", "tests"], ("src", "tests")),
    "generator": ("files,local",) * 3,
    "samples": ("7", 7, 7),
    "repair": ("2", 2, 2),
    "candidates_dir": ("out",) * 3,
    "model": ("owner/name",) * 3,
    "revision": ("v1",) * 3,
    "dtype": ("bfloat16",) * 3,
    "device_map": ("cuda:1",) * 3,
    "quantization": ("4bit",) * 3,
    "endpoint": ("http://localhost:8000/v1",) * 3,
    "protocol": ("chat",) * 3,
    "concurrency": ("3", 3, 3),
    "wake_timeout": ("30", 30, 30.0),
    "preset": ("script",) * 3,
    "temperature": ("0", 0, 0.0),
    "top_p": ("0.5", 0.5, 0.5),
    "top_k": ("40", 40, 40),
    "max_new_tokens": ("512", 512, 512),
    "seed": ("-3", -3, -3),
    "device": ("cpu",) * 3,
    "arch": ("sm_80",) * 3,
    "timing": ("off", False, False),
    "search": ("2.5", 2.5, 2.5),
    "min_speedup": ("1.5", 1.5, 1.5),
    "baseline": ("compile",) * 3,
    "deadline": ("2.5", 2.5, 2.5),
    "gpu_memory": ("1.5 GiB",) * 3,
    "reference_deadline": ("300", 300, 300.0),
    "workers": ("2", 2, 2),
    "cluster": ("auto",) * 3,
    "isolation": ("strict",) * 3,
    "require_kernels": ("yes", True, True),
    "require_timing": ("yes", True, True),
    "compare": ("off",) * 3,
    "compare_fail": ("2.5%",) * 3,
    "kernels_dir": ("pkg/kernels",) * 3,
    "annotations": ("no", False, False),
    "store": ("kept",) * 3,
}
"""For each setting: as text, as TOML, and what it means; never its default."""


def toml(value):
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def test_there_is_an_example_of_every_setting():
    assert list(EXAMPLES) == [field.name for field in fields(Settings)]
    assert all(EXAMPLES[field.name][2] != field.default for field in fields(Settings))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_setting_is_read_from_everywhere_and_has_its_own_type(tmp_path, name):
    text, value, wanted = EXAMPLES[name]
    from_environment = load_settings(tmp_path, environ={f"KERNELLLM_{name.upper()}": text})
    from_options = load_settings(tmp_path, {name: value}, environ={})
    (tmp_path / "pyproject.toml").write_text(f"[tool.kernelllm]\n{name} = {toml(value)}\n")
    from_file = load_settings(tmp_path, environ={})
    set_for_a_run = load_settings(tmp_path / "elsewhere", assigned([f"{name}={text}"]), environ={})
    for settings in (from_environment, from_options, from_file, set_for_a_run):
        assert getattr(settings, name) == wanted
        assert type(getattr(settings, name)) is type(wanted)
        assert settings == Settings(**{name: wanted})


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kernelllm]\nsamples = 2\narch = "sm_80"\nseed = 1\npaths = ["src"]\n'
    )
    environ = {"KERNELLLM_SAMPLES": "3", "KERNELLLM_SEED": "2"}
    settings = load_settings(tmp_path, {"samples": 4, "arch": None, "paths": ()}, environ)
    assert (settings.samples, settings.seed, settings.arch, settings.paths) == (4, 2, "sm_80", ("src",))


def test_keys_may_be_spelled_with_hyphens_and_empty_variables_say_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.kernelllm]\ndevice-map = "cpu"\n')
    assert load_settings(tmp_path, environ={"KERNELLLM_DEVICE_MAP": ""}).device_map == "cpu"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("samples", "--kernelllm-set takes KEY=VALUE, not 'samples'."),
        ("deadlin=3", "--kernelllm-set has no setting `deadlin`; did you mean `deadline`?"),
        ("xyzzy=3", "--kernelllm-set has no setting `xyzzy`; it takes annotations, arch, baseline, "),
    ],
)
def test_what_is_set_for_a_run_has_a_name_and_a_value(text, sentence):
    with pytest.raises(ConfigError) as error:
        assigned([text])
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("word", ["1", "true", "YES", "On"])
@pytest.mark.parametrize("other", ["0", "false", "NO", "Off"])
def test_yes_and_no_have_several_spellings(tmp_path, word, other):
    assert load_settings(tmp_path, environ={"KERNELLLM_REQUIRE_KERNELS": word}).require_kernels is True
    assert load_settings(tmp_path, environ={"KERNELLLM_TIMING": other}).timing is False


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("samples", "many", "int of at least 1"),
        ("samples", 0, "int of at least 1"),
        ("samples", 2.5, "int of at least 1"),
        ("samples", True, "int of at least 1"),
        ("samples", [4], "int of at least 1"),
        ("samples", "inf", "int of at least 1"),
        ("samples", float("inf"), "int of at least 1"),
        ("deadline", "inf", "float of at least 0"),
        ("concurrency", 0, "int of at least 1"),
        ("workers", -1, "int of at least 0"),
        ("gpu_memory", "24", "a size such as 24GiB"),
        ("gpu_memory", "0GiB", "a size such as 24GiB"),
        ("gpu_memory", 24, "a size such as 24GiB"),
        ("wake_timeout", -1, "float of at least 0"),
        ("min_speedup", "fast", "float of at least 0"),
        ("min_speedup", float("nan"), "float of at least 0"),
        ("min_speedup", -1.05, "float of at least 0"),
        ("temperature", "warm", "float"),
        ("temperature", False, "float"),
        ("top_k", "0.5", "int"),
        ("max_new_tokens", {}, "int"),
        ("kernels_dir", "../out", "names of letters, digits and _, with / between them"),
        ("kernels_dir", "/out", "names of letters, digits and _, with / between them"),
        ("kernels_dir", 3, "names of letters, digits and _, with / between them"),
        ("timing", "maybe", "bool"),
        ("timing", 1, "bool"),
        ("model", 3, "str"),
        ("paths", 3, "tuple"),
        ("dtype", "int8", "auto, bfloat16, float16 or float32"),
        ("preset", "published ", "published or script"),
        ("quantization", 8, "none, 8bit or 4bit"),
        ("quantization", [], "none, 8bit or 4bit"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(tmp_path, name, value, expected):
    with pytest.raises(ConfigError) as error:
        load_settings(tmp_path, {name: value}, {})
    assert str(error.value) == f"command line: `{name}` cannot be {value!r}; expected {expected}."
    if isinstance(value, str):
        with pytest.raises(ConfigError, match=rf"^KERNELLLM_{name.upper()}: `{name}` cannot be "):
            load_settings(tmp_path, environ={f"KERNELLLM_{name.upper()}": value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[tool.kernelllm]\nsample = 3\n",
            "[tool.kernelllm] has no setting `sample`; did you mean `samples`?",
        ),
        ("[tool.kernelllm]\nsamples = 'x'\n", "[tool.kernelllm]: `samples` cannot be 'x'; expected int"),
        ("[tool]\nkernelllm = 3\n", "[tool.kernelllm] is 3; expected a table."),
        ("[tool.kernelllm\n", "pyproject.toml: "),
    ],
)
def test_a_file_that_cannot_be_understood_is_named(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_settings(tmp_path, environ={})
    assert said in str(error.value) and "pyproject.toml" in str(error.value)


# ---------------------------------------------------------------------- options


def test_the_choices_that_help_shows_are_those_of_the_setting():
    shown = {name: option.metavar or choices(name) for name, option in options().items()}
    for name, hint in HINTS.items():
        if get_origin(hint) is Literal:
            assert set(shown[name].strip("{}").split(",")) == set(get_args(hint)), name


def test_every_option_reaches_its_setting(pytester):
    pytester.makepyfile("def test_nothing(): ...")
    plain = {
        "paths",
        "store",
        "timing",
        "require_kernels",
        "require_timing",
        "generator",
        "candidates_dir",
        "annotations",
    }
    given = {name: text for name, (text, _, _) in EXAMPLES.items() if name not in plain}
    given["isolation"] = "best"
    options = [
        f"--kernelllm-{name}={text}" if name in FREQUENT else f"--kernelllm-set={name}={text}"
        for name, text in given.items()
    ]
    pytester.makeconftest(
        f"""
        def pytest_collection_finish(session):
            settings = session.config.pluginmanager.get_plugin("kernelllm-run").settings
            for name, text in {given!r}.items():
                value = getattr(settings, name)
                assert str(value) == text or value == float(text), (name, value)
            assert not settings.timing and settings.require_kernels and settings.require_timing and settings.generator == "inductor"
            print("all there")
        """
    )
    flags = [
        "--kernelllm",
        "--kernelllm-no-timing",
        "--kernelllm-strict",
        "--kernelllm-require-timing",
        "--kernelllm-generator=inductor",
    ]
    done = pytester.runpytest_inprocess("-s", *flags, *options)
    done.stdout.fnmatch_lines(["*all there*"])


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 0), ("24GiB", 24 << 30), ("16 GB", 16 * 10**9), ("1.5GiB", 3 << 29), ("800MiB", 800 << 20)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert size_in_bytes(text) == size
