"""While a kernel is compiled others have the GPU: the judge's own, and a candidate's for its backward pass."""

import contextlib

import torch
import triton
import triton.language as tl

from kernelllm_judge.gpu_lock import hold_gpu
from kernelllm_judge.shared.channel import COMPILING
from kernelllm_judge.shared.compiling import compile_in
from kernelllm_judge.timer import Timer
from kernelllm_judge.worker.announcing import Announcer
from kernelllm_judge.worker.backward import BothPasses


@triton.jit
def doubled_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + x

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        doubled_kernel[(1,)](grad, out, N=len(grad))
        return out


class Heard:
    """A channel's end; what was sent through it."""

    def __init__(self):
        self.messages = []

    def send(self, message):
        self.messages.append(message)

    def receive(self):
        return {}


def test_others_may_time_while_the_judge_compiles_a_kernel_of_its_own(tmp_path):
    x, out, alone = torch.ones(64, device="cuda"), torch.empty(64, device="cuda"), []
    uuid = tmp_path.name
    timer = Timer(uuid, 0)

    @contextlib.contextmanager
    def compiling():
        with timer.compiling():
            with hold_gpu(uuid, alone=True):  # would wait for ever for this test, if that held it
                alone.append(True)
            yield

    end = compile_in(compiling)
    try:
        with timer.sharing():
            doubled_kernel[(1,)](x, out, N=64)
    finally:
        end()
    assert alone == [True]
    assert out.tolist() == [2.0] * 64


def test_what_a_backward_pass_compiles_is_announced():
    x = torch.ones(128, device="cuda")
    into = {"buffer": torch.ones(128, device="cuda"), "shape": [128], "strides": [1]}
    request = {"wrt": ["x"], "outputs": [into], "again": ""}
    heard = Heard()
    announcer = Announcer(heard)
    both = BothPasses(lambda: Doubled.apply(x), {"x": x}, request, lambda each: each, announcer.waiting)
    both()
    assert both.gradients[0].tolist() == [2.0] * 128
    assert heard.messages == [{COMPILING: True}, {COMPILING: False}]
    doubled_kernel[(1,)](x, torch.empty_like(x), N=32)
    assert len(heard.messages) == 4
