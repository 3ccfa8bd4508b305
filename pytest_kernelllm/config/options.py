"""The settings that a command line can give: ``pytest --kernelllm-NAME`` and ``kernelllm --NAME`` alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Option(NamedTuple):
    """One setting as an argument. Values stay text: ``load_settings`` checks them.

    Not a dataclass, and without ``Settings``: every pytest session with the plugin installed pays for this.
    """

    setting: str
    help: str
    metavar: str = ""
    flag: str = ""
    """Where it is not called as the setting is."""
    sets: bool | None = None
    """What the flag, which then takes no value, sets."""


WHO_WRITES = (
    Option(
        "generator",
        "who writes candidates: auto (default), kernelllm, local, endpoint, inductor, files; several with commas",
        "NAMES",
    ),
    Option("candidates_dir", "folder with candidates for the files generator", "DIR"),
)
LANGUAGE_MODEL = (
    Option(
        "model", "language model on the Hugging Face Hub, or its folder (default facebook/KernelLLM)", "NAME"
    ),
    Option("revision", "commit of the model (default: what the cache holds)", "HASH"),
    Option("endpoint", "ask a server in place of a local model: a URL, hf:NAME, hf-model:OWNER/MODEL", "URL"),
    Option("concurrency", "requests sent to an endpoint at once (default 8)", "N"),
    Option("wake_timeout", "seconds to wait for an endpoint that has to start (default 600)", "S"),
    Option("dtype", "of the local model's weights (default: its own)", "{auto,bfloat16,float16,float32}"),
    Option("device_map", "where the local model lies: auto (default), cuda:1, cpu", "WHERE"),
    Option("quantization", "of the local model (default none)", "{none,8bit,4bit}"),
    Option(
        "preset",
        "sampling: temperature 1.0, top_p 0.97 (published, the default), or 0.6, 0.95 (script)",
        "{published,script}",
    ),
    Option("temperature", "in place of the preset's; 0 is greedy", "T"),
    Option("top_p", "in place of the preset's", "P"),
    Option("top_k", "in place of the preset's (off)", "K"),
    Option("max_new_tokens", "longest answer (default 2048)", "N"),
    Option("seed", "what sampling starts from (default 0)", "N"),
)
JUDGING = (
    Option("device", "where candidates run; cpu is Triton's interpreter (default auto)", "{auto,cpu,cuda}"),
    Option("arch", "GPU architecture to compile for where there is no GPU (default sm_90)", "SM"),
    Option("timing", "prove only; measure no speed", flag="no-timing", sets=False),
    Option("baseline", "what the speedup is measured against (default eager)", "{eager,compile}"),
    Option("deadline", "seconds that one candidate may take (default 60)", "S"),
    Option("workers", "candidates judged side by side (default: by CPUs and GPUs)", "N"),
    Option(
        "isolation",
        "strict runs no candidate where this machine cannot isolate it fully (default best)",
        "{best,strict}",
    ),
)
A_RUN = (
    Option("samples", "candidates per target and generator (default 4)", "K"),
    Option("min_speedup", "smallest speedup over the baseline worth a suggestion (default 1.05)", "X"),
    Option("kernels_dir", "folder that suggestions put kernel modules in (default _triton)", "DIR"),
    Option("require_kernels", "fail targets for which there is no verified kernel", flag="strict", sets=True),
)


def add_options(add: Callable[..., Any], options: Iterable[Option], prefix: str = "") -> None:
    """Adds settings as arguments; those left out are None, and come from elsewhere.

    Args:
        add: ``add_argument`` of argparse, or ``addoption`` of pytest.
        options: which.
        prefix: before each name.
    """
    for option in options:
        flag = f"--{prefix}{option.flag or option.setting}".replace("_", "-")
        rest = {"dest": f"{prefix}{option.setting}".replace("-", "_"), "default": None, "help": option.help}
        if option.sets is not None:
            add(flag, action="store_const", const=option.sets, **rest)
        else:
            add(flag, metavar=option.metavar, **rest)
