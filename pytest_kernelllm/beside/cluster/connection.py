"""Connects to a Ray cluster, and puts Ray's errors into a few words. Imports Ray only to connect."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

from kernelllm_judge.core.shorten import whole
from pytest_kernelllm.pool.jobs import PoolFailed

_DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Attempts to reach a cluster, of 45 s each; Ray's own 20 take a quarter of an hour where a cluster has ended.
    "RAY_NUM_REDIS_GET_RETRIES": "1",
}
"""Environment variables that Ray reads when it is imported."""

_NOT_STARTED = ("Starting Ray client server failed", ".start_specific_server(")
"""What Ray's proxy says if the process that it starts for each client ended at once, or while it looked at it. For the next
client it starts another…"""

TRIES = 4
"""…and a busy machine may end more than one."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connects to a cluster, gives the module ``ray``, and leaves the cluster.

    A connection that this process has already is used, and left as it is.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, or ``ray://HOST:PORT``.

    Raises:
        PoolFailed: Ray is not installed, or there is no such cluster; one sentence.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise PoolFailed(
            f"--cluster needs Ray; run `pip install 'pytest-kernelllm[ray]'` ({error})."
        ) from None
    if ray.is_initialized():
        yield ray
        return
    with _silent():
        try:
            _join(ray, address)
        except Exception as error:  # of many kinds: Ray's own, its client's, gRPC's
            raise PoolFailed(
                f"There is no Ray cluster to use at {address}: {whole(error).rstrip('.')}; "
                "start one with `ray start --head`, or give its address as ray://HOST:PORT."
            ) from None
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, address: str) -> None:
    for left in reversed(range(TRIES)):
        try:
            with warnings.catch_warnings(action="ignore"):
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            return
        except Exception as error:
            if not left or not any(text in str(error) for text in _NOT_STARTED):
                raise


def reason(error: Exception) -> str:
    """Returns what Ray says about a lost actor, in a few words."""
    text = str(error).strip() or type(error).__name__
    if found := re.search(r"^The actor (?:died|is dead) because (.*?)(?:\.|$)", text, re.MULTILINE):
        return found[1]
    if re.match(r"The actor \w+ is unavailable", text):
        return "the connection to it broke"
    return whole(text.rpartition("\n")[2]).rstrip(".")


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keeps Ray from printing a cluster's errors to standard output, where verdicts may go; it has no option for that."""
    worker: Any = importlib.import_module("ray._private.worker")
    printing = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = printing
