"""How long workers may take."""

import contextlib

import pytest
import torch

from kernelllm_judge.findings import Findings
from kernelllm_judge.workers import Workers

KERNEL = "# @triton.jit\n@triton.jit\ndef kernel():\n    pass\n"


class Asked(Exception):
    """What a server was asked for."""


class Server:
    """Starts nothing."""

    @contextlib.contextmanager
    def worker(self, seconds, *shared):
        raise Asked(seconds)
        yield


@pytest.mark.parametrize(
    ("kernels", "seconds"), [(0, 20), (3, 22), (30, 40), (235, 20 * (1 + 235 / 30)), (5000, 200)]
)
def test_a_module_of_many_kernels_gets_the_time_to_compile_them(kernels, seconds):
    workers = Workers(Server(), torch.device("cpu"), 20.0)
    with pytest.raises(Asked) as asked, workers.loaded(KERNEL * kernels, None, Findings({})):
        pass
    assert asked.value.args == (pytest.approx(seconds),)
