"""What subcommands share: exit codes, options that are settings, and finding the target that a command line names."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_kernelllm.config import Settings, load_settings
from pytest_kernelllm.records import Target

OK, REJECTED, UNJUDGED = 0, 1, 2
"""Exit codes: all well; rejected or nothing found; could not be judged, or wrong use."""


class CommandError(Exception):
    """Something a person has to put right; one sentence."""


def add_generator_options(parser: argparse.ArgumentParser) -> None:
    """Who writes, and how."""
    group = parser.add_argument_group("who writes")
    group.add_argument(
        "--generator",
        metavar="NAME",
        help="auto (default), kernelllm, local, endpoint, inductor, files; several with commas",
    )
    group.add_argument("--candidates-dir", metavar="DIR", help="folder of the files generator")
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which language model, where, and how it is sampled."""
    group = parser.add_argument_group("language model")
    group.add_argument("--model", help="on the Hugging Face Hub, or its folder (default facebook/KernelLLM)")
    group.add_argument(
        "--revision", metavar="HASH", help="commit of the model (default: what the cache holds)"
    )
    group.add_argument("--endpoint", metavar="URL", help="ask a server: a URL, hf:NAME, hf-model:OWNER/MODEL")
    group.add_argument("--concurrency", type=int, metavar="N", help="requests sent at once (default 8)")
    group.add_argument(
        "--wake-timeout", type=float, metavar="S", help="wait for a starting endpoint (default 600)"
    )
    group.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), help="of a local model")
    group.add_argument("--device-map", metavar="WHERE", help="of a local model: auto (default), cuda:1, cpu")
    group.add_argument("--quantization", choices=("none", "8bit", "4bit"), help="of a local model")
    group.add_argument(
        "--preset",
        choices=("published", "script"),
        help="sampling: temperature 1.0, top_p 0.97 (published, the default), or 0.6, 0.95 (script)",
    )
    group.add_argument("--temperature", type=float, metavar="T", help="in place of the preset's; 0 is greedy")
    group.add_argument("--top-p", type=float, metavar="P", help="in place of the preset's")
    group.add_argument("--top-k", type=int, metavar="K", help="in place of the preset's (off)")
    group.add_argument("--max-new-tokens", type=int, metavar="N", help="longest answer (default 2048)")
    group.add_argument("--seed", type=int, metavar="N", help="what sampling starts from (default 0)")


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """Where and how candidates are judged."""
    group = parser.add_argument_group("judging")
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="where candidates run; cpu is Triton's interpreter",
    )
    group.add_argument(
        "--arch", metavar="SM", help="architecture to compile for without a GPU (default sm_90)"
    )
    group.add_argument("--no-timing", dest="timing", action="store_false", default=None, help="prove only")
    group.add_argument(
        "--baseline",
        choices=("eager", "compile"),
        help="what the speedup is measured against (default eager)",
    )
    group.add_argument(
        "--deadline", type=float, metavar="S", help="seconds one candidate may take (default 60)"
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="judged side by side (default: by CPUs and GPUs)"
    )
    group.add_argument(
        "--isolation",
        choices=("best", "strict"),
        help="strict judges nothing where candidates cannot be isolated fully (default best)",
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the project here, with what the command line says in their place.

    Raises:
        ConfigError: a setting has a wrong name or value.
    """
    names = {field.name for field in fields(Settings)} - {"paths", "store"}
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if name in names}
    return load_settings(Path.cwd(), given)


def find_target(reference: str) -> Target:
    """The target that ``file.py::Class`` names, or the only one of ``file.py``.

    Raises:
        CommandError: there is no such file, or no such target in it.
    """
    from pytest_kernelllm.discover.scan import scan_file

    file, _, name = reference.partition("::")
    if not Path(file).is_file():
        raise CommandError(f"There is no file {file}; a target is named file.py::Class.")
    found = scan_file(Path(file), Path.cwd(), kernelbench=name in ("", "Model"))
    match = [t for t in found.targets if t.name == name or (not name and len(found.targets) == 1)]
    if not match:
        known = ", ".join(t.name for t in found.targets) or "none"
        raise CommandError(f"{file} marks no class {name}; it marks {known}.")
    return match[0]
