"""Options, ``[tool.kernelllm]`` and environment, merged into one frozen ``Settings``."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal


class ConfigError(ValueError):
    """A setting has a wrong name or value; the text says where and what to write instead."""


@dataclass(frozen=True)
class Settings:
    """Everything a run can be told. The field names are the keys of ``[tool.kernelllm]``.

    Precedence: command line, then ``KERNELLLM_<NAME>`` in the environment, then ``[tool.kernelllm]`` in
    ``pyproject.toml``, then these defaults.
    """

    paths: tuple[str, ...] = ()
    """Files and folders, relative to the project root, searched for targets beside pytest's own arguments."""
    generator: str = "inductor"
    """Which generators write candidates, comma-separated: ``inductor``, ``files``."""
    samples: int = 4
    """Candidates asked for per target (k)."""
    candidates_dir: str = ""
    """Folder with candidate files, for the ``files`` generator."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where candidates run; ``auto`` takes the GPU if there is one."""
    arch: str = "sm_90"
    """GPU architecture that kernels are compiled for when there is no GPU to ask."""
    timing: bool = True
    """Measure speed on a GPU."""
    min_speedup: float = 1.05
    """The lower end of the speedup's confidence interval must reach this."""
    baseline: Literal["eager", "compile"] = "eager"
    """What the speedup is measured against: the module as it runs, or compiled by ``torch.compile``."""
    deadline: float = 60.0
    """Seconds one candidate may take before it is rejected."""
    workers: int = 0
    """Candidates judged at once; 0 chooses."""
    isolation: Literal["best", "strict"] = "best"
    """``strict`` refuses to run candidates where this machine cannot isolate them fully."""
    require_kernels: bool = False
    """A target without any verified kernel is a failure."""
    store: str = ".kernelllm"
    """The store's folder, relative to the project root."""


def _coerce(name: str, value: Any, origin: str) -> Any:
    default = next(f.default for f in fields(Settings) if f.name == name)
    try:
        if isinstance(default, bool):
            if isinstance(value, str) and value.lower() in (
                "1",
                "true",
                "yes",
                "on",
                "0",
                "false",
                "no",
                "off",
            ):
                return value.lower() in ("1", "true", "yes", "on")
            if isinstance(value, bool):
                return value
            raise ValueError
        if isinstance(default, tuple):
            return tuple(value.split()) if isinstance(value, str) else tuple(str(v) for v in value)
        if isinstance(default, float | int):
            return type(default)(value)
        if not isinstance(value, str):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(
            f"{origin}: `{name}` cannot be {value!r}; expected {type(default).__name__}."
        ) from None
    choices = _CHOICES.get(name)
    if choices and value not in choices:
        expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigError(f"{origin}: `{name}` cannot be {value!r}; expected {expected}.")
    return value


_CHOICES = {
    "device": ("auto", "cpu", "cuda"),
    "isolation": ("best", "strict"),
    "baseline": ("eager", "compile"),
}


def load_settings(
    root: Path, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings for the project at ``root``.

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
        try:
            table = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("kernelllm", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{pyproject}: {error}.") from None
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
