"""Stands in for a GPU in workers that have none: answers what kernels ask of it, and compiles for one without launching."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.interpreter import InterpretedFunction

from kernelllm_judge.core.architectures import architecture

PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    L2_cache_size=50 << 20,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448,
)
"""An H100's. A right kernel computes the same on any GPU; only its grid may depend on this."""


REGISTERS = 32
"""Registers that each thread of a kernel is said to use."""

DRIVER_PROPERTIES = {
    "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
    "max_num_regs": PROPERTIES.regs_per_multiprocessor,
    "multiprocessor_count": PROPERTIES.multi_processor_count,
    "warpSize": PROPERTIES.warp_size,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5120,
}
"""The same as Triton's driver names them; rates in kHz, the width in bits."""


def driver_for(arch: str) -> SimpleNamespace:
    """Returns what answers in place of Triton's driver: no tensor lies on a GPU, and nothing can be launched.

    Args:
        arch: of the GPU that kernels are compiled for, such as ``sm_90``.
    """
    named = architecture(arch)
    target = GPUTarget(named.backend, named.number, named.warp_size)
    return SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda device=0: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
        launcher_cls=lambda source, metadata: lambda *args, **kwargs: None,
        utils=SimpleNamespace(
            get_device_properties=lambda device=0: dict(DRIVER_PROPERTIES),
            load_binary=lambda *args: (None, None, REGISTERS, 0, PROPERTIES.max_threads_per_block),
        ),
    )


class WarmKernel:
    """What ``kernel.warmup`` returns in Triton's interpreter, where nothing is compiled: a kernel that can be launched."""

    n_regs = REGISTERS
    n_spills = 0
    metadata = SimpleNamespace(shared=16 << 10, num_warps=4)

    def __init__(self, kernel: Any) -> None:
        """``kernel``: the interpreted one."""
        self._kernel = kernel

    def _init_handles(self) -> None:
        """Does nothing, because there is no binary to load."""

    def __getitem__(self, grid: Any) -> Any:
        """Returns what launches the kernel, with all of its arguments."""
        return self._kernel[grid]


def answer_warmup() -> None:
    """Makes ``kernel.warmup`` return a kernel in Triton's interpreter."""
    run = InterpretedFunction.run

    def run_or_warm(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return WarmKernel(kernel) if warmup else run(kernel, *args, grid=grid, warmup=False, **kwargs)

    InterpretedFunction.run = run_or_warm


def answer_for_gpu() -> None:
    """Replaces functions of ``torch.cuda`` and Triton's driver that fail without a GPU, in this process."""
    triton.runtime.driver.set_active(driver_for(f"sm_{PROPERTIES.major}{PROPERTIES.minor}"))

    def nowhere(*device: Any) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    answers = {
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "get_device_name": lambda device=None: PROPERTIES.name,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "device": nowhere,
        "device_of": nowhere,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


MOST_CONFIGURATIONS = 4
"""Configurations of an autotuned kernel that are compiled, at most."""


class NotCompiled(Exception):
    """The compiler refused a kernel; the cause says why."""


@contextlib.contextmanager
def compile_only(arch: str) -> Iterator[list[str]]:
    """A context in which ``kernel[grid](...)`` compiles for ``arch`` (``sm_90``, ``gfx942``) instead of launching.

    Needs no GPU.

    Yields the list of names of the kernels compiled so far.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    triton.runtime.driver.set_active(driver_for(arch))
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
