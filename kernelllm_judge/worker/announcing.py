"""Announces to the judge when Triton compiles a kernel, so that nobody waits for the GPU meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from kernelllm_judge.core import accelerator
from kernelllm_judge.shared.channel import COMPILING, Channel
from kernelllm_judge.shared.compiling import compile_in


class Announcer:
    """Tells the judge when a compilation begins and ends; the end waits for the GPU.

    Triton compiles a kernel for many combinations of sizes, and an autotuned one for each configuration.
    """

    def __init__(self, channel: Channel) -> None:
        """Announces what this thread compiles from now on. Not reversible."""
        self._channel = channel
        self._owner = os.getpid(), threading.get_ident()
        self._waiting = False
        """Whether the owner waits for other threads, which may use the channel."""
        self._lock = threading.RLock()
        compile_in(self._announced)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Announces what other threads compile, too, as this one waits for them: PyTorch has one for the backward passes of a GPU."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        process, thread = self._owner
        if os.getpid() != process or not (self._waiting or threading.get_ident() == thread):
            yield  # only one may use the channel
            return
        with self._lock:
            if accelerator.in_use() and not accelerator.is_capturing():
                accelerator.synchronize()  # or others would time beside what was launched before
            self._channel.send({COMPILING: True})
            try:
                yield
            finally:
                self._channel.send({COMPILING: False})
                self._channel.receive()
