import os
from importlib import import_module
from unittest import mock

pytest_plugins = ["pytester"]


def pytest_configure(config):
    """Imports Triton so that its own functions (``tl.sum``, ``tl.max``) can be interpreted in this process, too.

    Triton decides it while it is imported, and whichever test module imports transformers first would
    decide for all the others. The GPU's tests (``-m gpu``) compile their kernels.
    """
    if config.getoption("markexpr") != "gpu":
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
            import_module("triton.language")
