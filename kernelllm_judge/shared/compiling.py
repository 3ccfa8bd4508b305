"""Has Triton compile kernels in a context, such as one in which others have the GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction


def compile_in(context: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    """Has this process compile each of its kernels in a context of its own; returns what ends that, if nobody did the same since.

    What launches a kernel is compiled in it, too, which Triton leaves to its first launch, and then finds in its cache.
    """
    compile_kernel = JITFunction._do_compile

    def apart(
        kernel: Any,
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Any:
        with context():
            compiled = compile_kernel(kernel, key, signature, device, constexprs, options, attrs, warmup)
            if isinstance(compiled, CompiledKernel) and not warmup:
                driver.active.launcher_cls(compiled.src, compiled.metadata)
            return compiled

    def end() -> None:
        if JITFunction._do_compile is apart:
            JITFunction._do_compile = compile_kernel

    JITFunction._do_compile = apart
    return end
