"""Stores what is known, so that nothing is written or judged twice."""

from pytest_kernelllm.store.store import Store

__all__ = ["Store"]
