"""The pytest plugin: hooks only. Without ``--kernelllm`` it does nothing, and imports next to nothing."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelllm_judge.core.output_file import output_file
from pytest_kernelllm.config.options import FREQUENT, add_options, run_name

if TYPE_CHECKING:
    from pytest_kernelllm.plugin.run import Run

RUN = "kernelllm-run"
"""Name under which the active run is registered as a plugin of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options; those left out come from ``KERNELLLM_*``, ``[tool.kernelllm]`` or the defaults in ``config.Settings``."""
    group = parser.getgroup("kernelllm", "kernelllm: Triton kernels for modules marked @triton_candidate")
    add = group.addoption
    add(
        "--kernelllm",
        action="store_true",
        help="write, prove and time kernels for the marked modules found under the given paths",
    )
    add("--kernelllm-only", action="store_true", help="like --kernelllm, without the project's other tests")
    add_options(add, prefix="kernelllm-", only=FREQUENT)
    add(
        "--kernelllm-set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any other setting of [tool.kernelllm] in pyproject.toml, for this run (docs/reference/settings.md)",
    )
    add(
        "--kernelllm-save",
        metavar="NAME",
        type=run_name,
        help="record the adopted kernels of this run under a name for --kernelllm-compare, also where they became slower",
    )
    add(
        "--kernelllm-report",
        metavar="FILE",
        type=output_file,
        help="write all verdicts as JSON (schema: docs/schema/report.json)",
    )
    add(
        "--kernelllm-html",
        metavar="FILE",
        type=output_file,
        help="write the report as one HTML page that needs no network (extra: html)",
    )
    add(
        "--kernelllm-sarif",
        metavar="FILE",
        type=output_file,
        help="write rejected and stale kernels as SARIF, for code scanning",
    )
    add(
        "--kernelllm-benchmark-json",
        metavar="FILE",
        type=output_file,
        help="write what was timed as JSON of pytest-benchmark",
    )
    parser.addini(
        "kernelllm_paths",
        "Files and folders searched for marked modules beside the given paths.",
        type="args",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Publishes the hooks that a conftest may implement."""
    from pytest_kernelllm.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """With pytest-xdist's ``-n N`` and no ``--dist``, keeps each target's candidates in one process, which prepares it once."""
    option = config.option
    distributed = getattr(option, "numprocesses", None) and option.dist == "no" and not option.distload
    if distributed and (option.kernelllm or option.kernelllm_only):
        option.dist = "loadscope"
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Starts a run where an option asks for it."""
    if config.getoption("kernelllm") or config.getoption("kernelllm_only"):
        from pytest_kernelllm.plugin.run import Run

        config.pluginmanager.register(Run(config), RUN)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects the targets of a file."""
    run: Run | None = parent.config.pluginmanager.get_plugin(RUN)
    return run.collect_file(file_path, parent) if run is not None else None
