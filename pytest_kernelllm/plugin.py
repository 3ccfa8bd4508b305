"""The pytest plugin: hooks only. Without ``--kernelllm`` it does nothing, and imports next to nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_kernelllm.items import Run

RUN = "kernelllm-run"
"""Name under which the active run is registered as a plugin of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options; those left out come from ``KERNELLLM_*``, ``[tool.kernelllm]`` or the defaults in ``config.Settings``."""
    group = parser.getgroup("kernelllm", "kernelllm: Triton kernels for modules marked @triton_candidate")
    add = group.addoption
    add(
        "--kernelllm",
        action="store_true",
        help="Write, prove and time kernels for the marked modules found under the given paths.",
    )
    add("--kernelllm-only", action="store_true", help="Like --kernelllm, without the project's other tests.")
    add(
        "--kernelllm-generator",
        metavar="NAMES",
        help="Who writes candidates: auto (default), kernelllm, local, endpoint, inductor, files; several with commas.",
    )
    add("--kernelllm-samples", metavar="K", type=int, help="Candidates per target and generator (default 4).")
    add("--kernelllm-candidates-dir", metavar="DIR", help="Folder with candidates for the files generator.")
    add(
        "--kernelllm-model",
        metavar="NAME",
        help="Language model (default facebook/KernelLLM), or its folder.",
    )
    add("--kernelllm-revision", metavar="HASH", help="Commit of the model (default: what the cache holds).")
    add(
        "--kernelllm-endpoint",
        metavar="URL",
        help="Ask a server in place of a local model: a URL, hf:NAME, hf-model:OWNER/MODEL.",
    )
    add("--kernelllm-concurrency", metavar="N", type=int, help="Requests sent at once (default 8).")
    add(
        "--kernelllm-wake-timeout",
        metavar="S",
        type=float,
        help="Seconds to wait for an endpoint that has to start (default 600).",
    )
    add(
        "--kernelllm-dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="Of the local model's weights (default: its own).",
    )
    add(
        "--kernelllm-device-map",
        metavar="WHERE",
        help="Where the local model lies: auto (default), cuda:1, cpu.",
    )
    add(
        "--kernelllm-quantization",
        choices=("none", "8bit", "4bit"),
        help="Of the local model (default none).",
    )
    add(
        "--kernelllm-preset",
        choices=("published", "script"),
        help="Sampling: temperature 1.0, top_p 0.97 (published, the default), or 0.6, 0.95 (script).",
    )
    add("--kernelllm-temperature", metavar="T", type=float, help="In place of the preset's; 0 is greedy.")
    add("--kernelllm-top-p", metavar="P", type=float, help="In place of the preset's.")
    add("--kernelllm-top-k", metavar="K", type=int, help="In place of the preset's (off).")
    add("--kernelllm-max-new-tokens", metavar="N", type=int, help="Longest answer (default 2048).")
    add("--kernelllm-seed", metavar="N", type=int, help="What sampling starts from (default 0).")
    add(
        "--kernelllm-device",
        choices=("auto", "cpu", "cuda"),
        help="Where candidates run; cpu is Triton's interpreter (default auto).",
    )
    add(
        "--kernelllm-arch",
        metavar="SM",
        help="GPU architecture to compile for where there is no GPU (default sm_90).",
    )
    add("--kernelllm-no-timing", action="store_true", help="Prove only; measure no speed.")
    add(
        "--kernelllm-min-speedup",
        metavar="X",
        type=float,
        help="Smallest speedup over eager worth a suggestion (default 1.05).",
    )
    add(
        "--kernelllm-baseline",
        choices=("eager", "compile"),
        help="What the speedup is measured against (default eager).",
    )
    add(
        "--kernelllm-deadline",
        metavar="S",
        type=float,
        help="Seconds that one candidate may take (default 60).",
    )
    add(
        "--kernelllm-workers",
        metavar="N",
        type=int,
        help="Candidates judged side by side (default: by the CPUs).",
    )
    add(
        "--kernelllm-isolation",
        choices=("best", "strict"),
        help="strict runs no candidate where this machine cannot isolate it fully (default best).",
    )
    add("--kernelllm-strict", action="store_true", help="Fail targets for which there is no verified kernel.")
    add(
        "--kernelllm-report",
        metavar="FILE",
        help="Write all verdicts as JSON (schema: docs/schema/report.json).",
    )
    parser.addini(
        "kernelllm_paths",
        "Files and folders searched for marked modules beside the given paths.",
        type="args",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Publish the hooks that a conftest may implement."""
    from pytest_kernelllm import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Give each of xdist's processes its GPU before anything can touch CUDA."""
    options = early_config.known_args_namespace
    if "PYTEST_XDIST_WORKER" in os.environ and (options.kernelllm or options.kernelllm_only):
        from pytest_kernelllm.judge.environment import find_gpu

        find_gpu()


def pytest_configure(config: pytest.Config) -> None:
    """Start a run when asked to."""
    if config.getoption("kernelllm") or config.getoption("kernelllm_only"):
        from pytest_kernelllm.items import Run

        config.pluginmanager.register(Run(config), RUN)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the targets of a file."""
    run: Run | None = parent.config.pluginmanager.get_plugin(RUN)
    return run.collect_file(file_path, parent) if run is not None else None
