"""Options, ``[tool.kernelllm]`` and environment, merged into one frozen ``Settings``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pytest_kernelllm.core.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """All settings of a run. The field names are the keys of ``[tool.kernelllm]``.

    Precedence: command line, then ``KERNELLLM_<NAME>`` in the environment, then ``[tool.kernelllm]`` in
    ``pyproject.toml``, then these defaults.
    """

    paths: tuple[str, ...] = ()
    """Files and folders, relative to the project root, that are searched for targets beside pytest's own arguments."""
    generator: str = "auto"
    """Who writes candidates, comma-separated: ``kernelllm`` (the ``endpoint`` if one is set, else ``local``), ``local``,
    ``endpoint``, ``inductor``, ``files``; ``auto`` takes the best one available."""
    samples: int = 4
    """Candidates asked for, for each target and each generator."""
    candidates_dir: str = ""
    """Folder with candidate files, for the ``files`` generator."""
    model: str = "facebook/KernelLLM"
    """The language model. For ``local``, a name on the Hugging Face Hub or a folder; for ``endpoint``, the model to ask for
    if the server has several."""
    revision: str = ""
    """The model's revision, best a commit hash. Empty: what the cache holds as ``main``, else the newest."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """The dtype of the local model's weights. ``auto`` takes the model's own, or float32 without a GPU."""
    device_map: str = "auto"
    """Where the local model lies: ``auto`` (one GPU if it fits, else all), ``cuda:1``, ``cpu``."""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """Quantization of the local model, by bitsandbytes."""
    endpoint: str = ""
    """The server to ask: a URL, ``hf:NAME`` (one of your Inference Endpoints), or ``hf-model:OWNER/MODEL`` (a provider)."""
    concurrency: int = 8
    """Requests sent to an endpoint at once."""
    wake_timeout: float = 600.0
    """Seconds to wait for an endpoint that has to start first."""
    preset: Literal["published", "script"] = "published"
    """How tokens are drawn: as for KernelLLM's published pass@k (temperature 1.0, top_p 0.97), or as its script does (0.6, 0.95)."""
    temperature: float | None = None
    """Replaces the preset's temperature; 0 takes the likeliest token every time."""
    top_p: float | None = None
    """Replaces the preset's top_p."""
    top_k: int | None = None
    """Replaces the preset's top_k, which is off (0)."""
    max_new_tokens: int | None = None
    """Longest answer in tokens; replaces the preset's 2,048."""
    seed: int = 0
    """What sampling starts from, if the model can be seeded."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where candidates run. ``auto`` takes the GPU if there is one."""
    arch: str = "sm_90"
    """The GPU architecture that kernels are compiled for if there is no GPU."""
    timing: bool = True
    """Whether to measure speed on a GPU."""
    min_speedup: float = 1.05
    """The smallest speedup worth a suggestion: the lower end of its confidence interval must reach this."""
    baseline: Literal["eager", "compile"] = "eager"
    """What the speedup is measured against: the module as it runs, or compiled by ``torch.compile``."""
    deadline: float = 60.0
    """Seconds that one candidate may take before it is rejected."""
    workers: int = 0
    """Candidates judged at once; 0 chooses by CPUs and GPUs."""
    isolation: Literal["best", "strict"] = "best"
    """``strict`` refuses to run candidates if this machine cannot isolate them fully; ``best`` takes what there is."""
    require_kernels: bool = False
    """Whether a target without any verified kernel is a failure."""
    kernels_dir: str = "_triton"
    """Where suggestions put kernel modules: a folder beside each target's file or, with ``/``, one folder of the project."""
    store: str = ".kernelllm"
    """The store's folder, relative to the project root."""


_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


_LEAST = {"samples": 1, "concurrency": 1, "workers": 0, "deadline": 0, "wake_timeout": 0}


def _coerce(name: str, value: Any, origin: str) -> Any:
    """Converts a setting to its own type, from TOML, a command line or an environment variable."""
    annotation = get_type_hints(Settings)[name]
    if get_origin(annotation) is UnionType:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        if value not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise ConfigError(f"{origin}: `{name}` cannot be {value!r}; expected {expected}.")
        return value
    kind = get_origin(annotation) or annotation
    try:
        if kind is bool:
            return value if isinstance(value, bool) else _WORDS[value.lower()]
        if kind is tuple:
            return tuple(value.split()) if isinstance(value, str) else tuple(str(v) for v in value)
        if kind in (int, float) and not isinstance(value, bool):
            number = kind(value)
            whole = isinstance(value, str) or number == value  # int(4.7) is 4
            if whole and math.isfinite(number) and number >= _LEAST.get(name, -math.inf):
                return number
        if kind is str and isinstance(value, str):
            return value
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        pass
    least = f" of at least {_LEAST[name]}" if name in _LEAST else ""
    raise ConfigError(f"{origin}: `{name}` cannot be {value!r}; expected {kind.__name__}{least}.")


def load_settings(
    root: Path, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Loads the settings for the project at ``root``.

    Args:
        root: folder whose ``pyproject.toml`` is read, if there is one.
        overrides: values from the command line; None entries mean "not given".
        environ: the environment, by default this process's.

    Raises:
        ConfigError: an unknown key or a value of the wrong type.
    """
    names = {f.name for f in fields(Settings)}
    merged: dict[str, Any] = {}
    pyproject = root / "pyproject.toml"
    if pyproject.is_file():
        import tomllib

        try:
            table = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("kernelllm", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{pyproject}: {error}.") from None
        if not isinstance(table, dict):
            raise ConfigError(f"{pyproject}: [tool.kernelllm] is {table!r}; expected a table.")
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in names:
                raise ConfigError(
                    f"{pyproject}: [tool.kernelllm] has no setting `{key}`; it has {', '.join(sorted(names))}."
                )
            merged[name] = _coerce(name, value, f"{pyproject}: [tool.kernelllm]")
    for name in names:
        variable = f"KERNELLLM_{name.upper()}"
        if value := (os.environ if environ is None else environ).get(variable):
            merged[name] = _coerce(name, value, variable)
    for name, value in (overrides or {}).items():
        if value is not None and value != ():
            merged[name] = _coerce(name, value, "command line")
    return replace(Settings(), **merged)
