import os
import signal
from importlib import import_module
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

LONG = {"commands", "models", "passk", "plugin", "verify"}
"""Folders whose tests start many processes."""


def pytest_configure(config):
    """Imports Triton so that its own functions (``tl.sum``, ``tl.max``) can be interpreted in this process, too.

    Triton decides it while it is imported, and whichever test module imports transformers first would
    decide for all the others. The GPU's tests (``-m gpu``) compile their kernels.

    PyTorch computes with one thread, here and in what is started from here: tensors are small, and where tests
    run side by side, threads that wait for each other take several times as long as the work.
    """
    if config.getoption("markexpr") != "gpu":
        os.environ["OMP_NUM_THREADS"] = "1"
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
            import_module("triton.language")
    # How fast the machine is says nothing about what is tested; nor does it about a strategy's size.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")
    # A shell lets what it runs in the background ignore it; the programs under test would as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The runs under test would annotate this one's log.
    os.environ.pop("GITHUB_ACTIONS", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more process than cores: tests wait for the processes that they start."""
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_collection_modifyitems(items):
    """Begins with the folders that take longest, so that the last file of a run is a short one."""
    items.sort(key=lambda item: not LONG.intersection(item.path.parts))


@pytest.fixture(scope="session")
def judge():
    """A judge without a GPU, for every test that asks nothing particular of it: one takes seconds to start."""
    from kernelllm_judge.environment import find_environment
    from kernelllm_judge.judging import Judge

    with Judge(find_environment("cpu")) as judge:
        yield judge


@pytest.fixture(scope="session")
def warm():
    """Such a judge as commands hold it, which also loads what they name."""
    from kernelllm_judge.tool.warm import WarmJudge

    with WarmJudge("cpu") as judge:
        yield judge


@pytest.fixture
def restored_precision():
    """Restores PyTorch's settings of precision after a test that changes them."""
    import torch

    tf32, precision = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision(precision)
