"""What is already known, so that nothing is written or judged twice."""

from pytest_kernelllm.store.local import Store

__all__ = ["Store"]
