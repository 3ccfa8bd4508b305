"""Announces to the judge when Triton compiles a kernel, so that nobody waits for the GPU meanwhile."""

from __future__ import annotations

import os
import threading
from typing import Any

from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from pytest_kernelllm.judge.shared.channel import COMPILING, Channel


def announce_compiling(channel: Channel) -> None:
    """Has the judge told when a compilation begins and ends on this thread; the end waits for the GPU. Not reversible.

    Autotuned kernels may compile for a minute, and products without tensor cores for ten seconds each. What launches a
    kernel is compiled, too, which Triton leaves to its first launch.
    """
    compile_kernel, owner = JITFunction._do_compile, (os.getpid(), threading.get_ident())

    def announced(kernel: Any, *args: Any) -> Any:
        if (os.getpid(), threading.get_ident()) != owner:  # only one may use the channel
            return compile_kernel(kernel, *args)
        channel.send({COMPILING: True})
        try:
            compiled = compile_kernel(kernel, *args)
            warmup = args[-1]
            if isinstance(compiled, CompiledKernel) and not warmup:
                _ = compiled.run
            return compiled
        finally:
            channel.send({COMPILING: False})
            channel.receive()

    JITFunction._do_compile = announced
