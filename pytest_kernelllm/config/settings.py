"""Options, ``[tool.kernelllm]`` and environment, merged into one frozen ``Settings``."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from kernelllm_judge.core.architectures import ARCHITECTURES
from kernelllm_judge.core.errors import ConfigError


class Option(NamedTuple):
    """An option of the command line for a setting: ``pytest --kernelllm-NAME`` and ``kernelllm --NAME`` alike.

    What is given stays text; ``load_settings`` checks it.
    """

    group: str
    help: str
    metavar: str = ""
    flag: str = ""
    """The option's name, where it is not the setting's."""
    sets: bool | None = None
    """What the flag, which then takes no value, sets."""
    bare: str = ""
    """What the flag without its value sets, where it may stand without."""


GENERATORS, LANGUAGE_MODEL, JUDGING, RUN = "generators", "language model", "judging", "run"
"""Groups of options."""


def option(default: Any, *args: Any, **kwargs: Any) -> Any:
    """A setting that a command line can give; arguments after the default are ``Option``'s."""
    return field(default=default, metadata={"option": Option(*args, **kwargs)})


@dataclass(frozen=True)
class Settings:
    """All settings of a run. The field names are the keys of ``[tool.kernelllm]``.

    Precedence: command line, then ``KERNELLLM_<NAME>`` in the environment, then ``[tool.kernelllm]`` in
    ``pyproject.toml``, then these defaults.
    """

    paths: tuple[str, ...] = ()
    """Files and folders, relative to the project root, that are searched for targets beside pytest's own arguments."""
    generator: str = option(
        "auto", GENERATORS, "who writes candidates: auto (default) or a comma-separated list", "NAMES"
    )
    """Who writes candidates, comma-separated: ``kernelllm`` (the ``endpoint`` if one is set, else ``local``), ``local``,
    ``endpoint``, ``inductor``, ``files``; ``auto`` takes the best one available."""
    samples: int = option(4, RUN, "candidates per target and generator (default 4)", "K")
    """Candidates asked for, for each target and each generator."""
    repair: int = option(
        0, LANGUAGE_MODEL, "rounds in which a rejected answer goes back with its verdict (default 0)", "N"
    )
    """How often a rejected answer goes back to the language model with its verdict, for a better one. 0: never."""
    candidates_dir: str = option("", GENERATORS, "folder with candidates for the files generator", "DIR")
    """Folder with candidate files, for the ``files`` generator."""
    model: str = option(
        "facebook/KernelLLM",
        LANGUAGE_MODEL,
        "language model: a name on the Hub or a folder (default facebook/KernelLLM)",
        "NAME",
    )
    """The language model. For ``local``, a name on the Hugging Face Hub or a folder; for ``endpoint``, the model to ask for
    if the server has several."""
    revision: str = option("", LANGUAGE_MODEL, "commit of the model (default: what the cache holds)", "HASH")
    """The model's revision, best a commit hash. Empty: what the cache holds as ``main``, else the newest."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = option(
        "auto", LANGUAGE_MODEL, "dtype of the local model's weights (default: its own)"
    )
    """The dtype of the local model's weights. ``auto`` takes the model's own, or float32 without a GPU."""
    device_map: str = option(
        "auto", LANGUAGE_MODEL, "where the local model lies: auto (default), cuda:1, cpu", "WHERE"
    )
    """Where the local model lies: ``auto`` (one GPU if it fits, else all), ``cuda:1``, ``cpu``."""
    quantization: Literal["none", "8bit", "4bit"] = option(
        "none", LANGUAGE_MODEL, "of the local model (default none)"
    )
    """Quantization of the local model, by bitsandbytes."""
    endpoint: str = option(
        "",
        LANGUAGE_MODEL,
        "ask a server in place of a local model: a URL, hf:NAME, hf-model:OWNER/MODEL",
        "URL",
    )
    """The server to ask: a URL, ``hf:NAME`` (one of your Inference Endpoints), or ``hf-model:OWNER/MODEL`` (a provider)."""
    protocol: Literal["auto", "chat", "responses", "completions"] = option(
        "auto", LANGUAGE_MODEL, "how to talk to the server (default: by the model and what the server has)"
    )
    """How to talk to the server: ``chat`` in messages, ``responses`` in messages through OpenAI's Responses API, ``completions``
    by a text to continue. ``auto`` chats, except with models called KernelLLM, and with servers that do not."""
    concurrency: int = option(8, LANGUAGE_MODEL, "requests sent to an endpoint at once (default 8)", "N")
    """Requests sent to an endpoint at once."""
    wake_timeout: float = option(
        600.0, LANGUAGE_MODEL, "seconds to wait for an endpoint that has to start (default 600)", "S"
    )
    """Seconds to wait for an endpoint that has to start first."""
    preset: Literal["published", "script"] = option(
        "published",
        LANGUAGE_MODEL,
        "sampling: temperature 1.0, top_p 0.97 (published, the default), or 0.6, 0.95 (script)",
    )
    """How tokens are drawn: as for KernelLLM's published pass@k (temperature 1.0, top_p 0.97), or as its script does (0.6, 0.95)."""
    temperature: float | None = option(None, LANGUAGE_MODEL, "in place of the preset's; 0 is greedy", "T")
    """Replaces the preset's temperature; 0 takes the likeliest token every time."""
    top_p: float | None = option(None, LANGUAGE_MODEL, "in place of the preset's", "P")
    """Replaces the preset's top_p."""
    top_k: int | None = option(None, LANGUAGE_MODEL, "in place of the preset's (off)", "K")
    """Replaces the preset's top_k, which is off (0)."""
    max_new_tokens: int | None = option(None, LANGUAGE_MODEL, "longest answer (default 2048)", "N")
    """Longest answer in tokens; replaces the preset's 2,048."""
    seed: int = option(0, LANGUAGE_MODEL, "what sampling starts from (default 0)", "N")
    """What sampling starts from, if the model can be seeded."""
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", JUDGING, "where candidates run; cpu is Triton's interpreter (default auto)"
    )
    """Where candidates run. ``auto`` takes the GPU if there is one."""
    arch: str = option(
        "sm_90", JUDGING, "GPU architecture to compile for where there is no GPU (default sm_90)", "SM"
    )
    """The GPU architecture that kernels are compiled for if there is no GPU."""
    timing: bool = option(True, JUDGING, "prove only; measure no speed", flag="no-timing", sets=False)
    """Whether to measure speed on a GPU."""
    search: float = option(
        10.0,
        GENERATORS,
        "seconds to search for the fastest of Inductor's programs, a target, on a GPU; 0: none (default 10)",
        "SECONDS",
    )
    """Seconds in which programs of the ``inductor`` generator are measured to find the fastest one, for each target; 0 searches
    nothing. Without a GPU, or with ``timing`` off, nothing is searched either."""
    min_speedup: float = option(
        1.05, RUN, "smallest speedup over the baseline worth a suggestion (default 1.05)", "X"
    )
    """The smallest speedup worth a suggestion: the lower end of its confidence interval must reach this."""
    baseline: Literal["eager", "compile", "best"] = option(
        "eager", JUDGING, "what a kernel must beat; best is the faster of both (default eager)"
    )
    """What ``min_speedup`` is measured against: the module as it runs (``eager``), the module compiled by ``torch.compile``
    (``compile``), or on each case the faster of both (``best``). Reports show both speedups whatever is set here."""
    deadline: float = option(60.0, JUDGING, "seconds that one candidate may take (default 60)", "S")
    """Seconds that one candidate of a few kernels may take before it is rejected. One of many gets more, up to ten times as
    many seconds, because each kernel has to be compiled."""
    gpu_memory: str = option(
        "", JUDGING, "GPU memory that judging may take, such as 24GiB (default: nearly all of it)", "SIZE"
    )
    """GPU memory that judging may take, such as ``24GiB`` or ``16GB``; empty: nearly all of it."""
    reference_deadline: float = option(
        120.0,
        JUDGING,
        "seconds that the original may take to import, build, draw inputs or run (default 120)",
        "S",
    )
    """Seconds that the original may take for each of its stages: being imported, being built, drawing inputs, one run. Then its
    process is replaced, and its verdict is inconclusive."""
    workers: int = option(0, JUDGING, "candidates judged side by side (default: by CPUs and GPUs)", "N")
    """Candidates judged at once; 0 chooses by CPUs and GPUs."""
    cluster: str = option(
        "", JUDGING, "judge on a Ray cluster: auto or ray://HOST:PORT (default: on this machine)", "ADDRESS"
    )
    """The Ray cluster that judges: ``auto`` for the one that this machine belongs to, or ``ray://HOST:PORT``; empty: this machine."""
    isolation: Literal["best", "strict"] = option(
        "best", JUDGING, "strict runs nothing that cannot be isolated fully (default best)"
    )
    """``strict`` refuses to run candidates if this machine cannot isolate them fully; ``best`` takes what there is."""
    require_kernels: bool = option(
        False, RUN, "fail targets for which there is no verified kernel", flag="strict", sets=True
    )
    """Whether a target without any verified kernel is a failure."""
    require_timing: bool = option(
        False, RUN, "suggest only kernels whose speed was measured on a GPU", flag="require-timing", sets=True
    )
    """Whether kernels whose speed was never measured get no patch, and so no pull request."""
    compare: str = option(
        "latest",
        RUN,
        "recorded run to compare adopted kernels with: a name, an id, latest (default) or off",
        "RUN",
        bare="latest",
    )
    """The recorded run that the speed of adopted kernels is compared with: its name, the start of its id, ``latest``, or ``off``, which
    also records nothing."""
    compare_fail: str = option(
        "10%", RUN, "share of its recorded speedup that an adopted kernel may lose (default 10%)", "SHARE"
    )
    """How much of its recorded speedup an adopted kernel may lose before it fails: the whole 95 % interval of the loss must
    exceed this share."""
    kernels_dir: str = option(
        "_triton", RUN, "folder that suggestions put kernel modules in (default _triton)", "DIR"
    )
    """Where suggestions put kernel modules: a folder beside each target's file or, with ``/``, one folder of the project."""
    annotations: bool = True
    """Whether ``pytest --kernelllm`` in GitHub Actions annotates the markers of kernels that fail, are stale or can be adopted."""
    store: str = ".kernelllm"
    """The store's folder, relative to the project root."""


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

_LEAST = {"samples": 1, "concurrency": 1, "reference_deadline": 1} | dict.fromkeys(
    ("workers", "repair", "deadline", "search", "wake_timeout", "min_speedup"), 0
)

_SIZE = r"(\d+(?:\.\d+)?) *([KMGT])(i?)B"

_FORMS = {
    "compare_fail": (r"\d{1,2}(\.\d+)? ?%", "a percentage below 100%, such as 10%"),
    "arch": ("|".join(ARCHITECTURES), f"one of {', '.join(ARCHITECTURES)}"),
    "kernels_dir": (r"[^\W\d]\w*(/[^\W\d]\w*)*", "names of letters, digits and _, with / between them"),
    "cluster": ("(auto|ray://.*)?", "auto or ray://HOST:PORT"),
    "gpu_memory": (rf"((?![0.]+ *[KMGT]){_SIZE})?", "a size such as 24GiB"),
}
"""What text a setting takes, where it does not take any: a pattern, and words."""


def _coerce(name: str, value: Any, origin: str) -> Any:
    """Converts a setting to its own type, from TOML, a command line or an environment variable."""
    annotation = get_type_hints(Settings)[name]
    if get_origin(annotation) is UnionType:
        annotation = get_args(annotation)[0]
    kind = get_origin(annotation) or annotation
    expected: str = kind.__name__ + (f" of at least {_LEAST[name]}" if name in _LEAST else "")
    if kind is Literal:
        *first, last = get_args(annotation)
        expected = f"{', '.join(first)} or {last}"
        if value in (*first, last):
            return value
    elif kind is tuple and isinstance(value, str | list | tuple):
        return tuple(value.split()) if isinstance(value, str) else tuple(map(str, value))
    elif kind is bool:
        text = str(value).lower()
        if text in _TRUE + _FALSE and isinstance(value, bool | str):
            return text in _TRUE
    elif kind is str:
        pattern, expected = _FORMS.get(name, ("(?s:.*)", expected))
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
    elif not isinstance(value, bool):
        with contextlib.suppress(OverflowError, TypeError, ValueError):
            number = kind(value)
            whole = isinstance(value, str) or number == value  # int(4.7) is 4
            if whole and math.isfinite(number) and number >= _LEAST.get(name, -math.inf):
                return number
    raise ConfigError(f"{origin}: `{name}` cannot be {value!r}; expected {expected}.")


def size_in_bytes(text: str) -> int:
    """Returns the bytes of a size such as ``24GiB``, ``16 GB`` or ``800MiB``; 0 for an empty text."""
    found = re.fullmatch(_SIZE, text)
    return int(float(found[1]) * (1024 if found[3] else 1000) ** ("KMGT".index(found[2]) + 1)) if found else 0


def share(text: str) -> float:
    """Returns the number, 0 to 1, of a percentage such as ``10%`` or ``2.5 %``."""
    return float(text.rstrip("% ")) / 100


def assigned(texts: Sequence[str]) -> dict[str, str]:
    """Returns the settings that ``KEY=VALUE`` texts of a command line give.

    Raises:
        ConfigError: one has no ``=``, or names no setting.
    """
    origin = "--kernelllm-set"
    for text in texts:
        if "=" not in text:
            raise ConfigError(f"{origin} takes KEY=VALUE, not {text!r}.")
    pairs = (text.split("=", 1) for text in texts)
    return {_named(key.strip(), origin): value for key, value in pairs}


def _named(key: str, origin: str) -> str:
    """The setting of a name that a person wrote."""
    names = [f.name for f in fields(Settings)]
    name = key.replace("-", "_")
    if name not in names:
        from difflib import get_close_matches  # no session without a mistake needs it

        nearest = get_close_matches(name, names, 1, 0.5)
        hint = f"did you mean `{nearest[0]}`?" if nearest else f"it takes {', '.join(sorted(names))}."
        raise ConfigError(f"{origin} has no setting `{key}`; {hint}")
    return name


def load_settings(
    root: Path, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Loads the settings for the project at ``root``.

    Args:
        root: folder whose ``pyproject.toml`` is read, if there is one.
        overrides: values from the command line; None entries mean "not given".

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
            name = _named(key, f"{pyproject}: [tool.kernelllm]")
            merged[name] = _coerce(name, value, f"{pyproject}: [tool.kernelllm]")
    for name in names:
        variable = f"KERNELLLM_{name.upper()}"
        if value := (os.environ if environ is None else environ).get(variable):
            merged[name] = _coerce(name, value, variable)
    for name, value in (overrides or {}).items():
        if value is not None and value != ():
            merged[name] = _coerce(name, value, "command line")
    return replace(Settings(), **merged)
