"""Announces to the judge when Triton compiles a kernel, so that nobody waits for the GPU meanwhile."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pytest_kernelllm.judge.shared.channel import COMPILING, Channel


def announce_compiling(channel: Channel) -> None:
    """Has the judge told when a compilation begins and ends on this thread; the end waits for the GPU. Not reversible.

    Triton compiles a kernel for many combinations of sizes, and an autotuned one for each configuration. What launches a kernel
    is compiled, too, which Triton leaves to its first launch, and then finds in its cache.
    """
    compile_kernel, owner = JITFunction._do_compile, (os.getpid(), threading.get_ident())

    def announced(
        kernel: Any,
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Any:
        arguments = (kernel, key, signature, device, constexprs, options, attrs, warmup)
        if (os.getpid(), threading.get_ident()) != owner:  # only one may use the channel
            return compile_kernel(*arguments)
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()  # or others would time beside what was launched before
        channel.send({COMPILING: True})
        try:
            compiled = compile_kernel(*arguments)
            if isinstance(compiled, CompiledKernel) and not warmup:
                driver.active.launcher_cls(compiled.src, compiled.metadata)
            return compiled
        finally:
            channel.send({COMPILING: False})
            channel.receive()

    JITFunction._do_compile = announced
