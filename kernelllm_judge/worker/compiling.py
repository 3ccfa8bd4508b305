"""Compiles the kernels that a candidate launches for a GPU architecture, with or without such a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import triton

from kernelllm_judge.worker.absent_gpu import driver_for

MOST_CONFIGURATIONS = 4
"""Configurations of an autotuned kernel that are compiled, at most."""


class NotCompiled(Exception):
    """The compiler refused a kernel; the cause says why."""


@contextlib.contextmanager
def compile_only(arch: str) -> Iterator[list[str]]:
    """A context in which ``kernel[grid](...)`` compiles for ``arch`` (``sm_90``) instead of launching.

    Needs no GPU.

    Yields the list of names of the kernels compiled so far.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    triton.runtime.driver.set_active(driver_for(int(arch.removeprefix("sm_").rstrip("af"))))
    compiled: list[str] = []
    launch, tune = JITFunction.run, Autotuner.run

    def compile_one(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("warmup", None)
        try:
            result = launch(kernel, *args, warmup=True, **kwargs)
        except Exception as error:
            raise NotCompiled from error
        compiled.append(kernel.fn.__name__)
        return result

    def compile_all(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        for config in spread(tuner.configs, MOST_CONFIGURATIONS):
            tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})

    JITFunction.run, Autotuner.run = compile_one, compile_all
    try:
        yield compiled
    finally:
        JITFunction.run, Autotuner.run = launch, tune


def spread(configurations: Sequence[Any], most: int) -> list[Any]:
    """Returns at most ``most`` configurations, the first and the last among them, in even steps."""
    if len(configurations) <= most:
        return list(configurations)
    return [configurations[i * (len(configurations) - 1) // (most - 1)] for i in range(most)]
