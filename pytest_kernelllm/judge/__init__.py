"""The judge. Calling the package is calling ``verify.in_memory.judge``: ``pytest_kernelllm.judge`` names both."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Judges one candidate; see ``pytest_kernelllm.verify.in_memory.judge``, which lies above the judge."""
        return importlib.import_module("pytest_kernelllm.verify.in_memory").judge(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
