"""``judge`` and ``adopt`` from Python: real judging in Triton's interpreter, and calls that run what was judged."""

import contextlib
import subprocess
import sys

import pytest
import torch
from torch import nn

import pytest_kernelllm
from kernelllm_judge.pair_files import PairError
from kernelllm_judge.target.errors import TargetError
from pytest_kernelllm import adopt, judge, triton_candidate
from pytest_kernelllm.runtime import KernelLLMWarning, explain


def values(n: int = 300):
    return torch.randn(n)


class Shift(nn.Module):
    def __init__(self, by: float = 2.0):
        super().__init__()
        self.by = by
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight + self.by


class Other(Shift):
    def forward(self, x):
        return x * self.weight - self.by


@triton_candidate(inputs=values, dims={"n": (1, 500)})
class Marked(Shift):
    pass


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def shift_kernel(x_ptr, weight_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * tl.load(weight_ptr) + by, i < n)


def forward(self, x):
    out = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, out, x.numel(), self.by, BLOCK=256)
    return out
"""
X = torch.linspace(-1, 1, 300)
WRONG = KERNEL.replace("+ by", "- by")


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """A working folder outside this repository, of which a class of this file would otherwise be a part, with all that it imports."""
    with contextlib.chdir(tmp_path_factory.mktemp("elsewhere")):
        yield


@pytest.fixture(scope="module")
def kernel():
    judged = judge(Marked, KERNEL, device="cpu")
    assert judged.accepted, judged.verdict.reason
    return judged


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("KERNELLLM_STRICT", "1")


def test_the_judged_kernel_is_what_ships(kernel):
    assert kernel.cls is Marked and kernel.verdict.cases == ("default",)
    assert '"n": (1, 500)' in kernel.source.replace("'", '"')
    assert kernel.source.startswith("# Triton kernel for ")


def test_example_arguments_in_place_of_a_callable_and_a_function_in_place_of_a_text(tmp_path, monkeypatch):
    (tmp_path / "shift_kernel.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    import shift_kernel

    judged = judge(Shift(3.0), shift_kernel.forward, cases={"x": X}, device="cpu", timing=False)
    assert judged.accepted, judged.verdict.reason
    assert "(300,)" in judged.source
    wrong = judge(Shift, WRONG, cases=values, device="cpu")
    assert (wrong.verdict.verdict, wrong.verdict.rule, wrong.accepted) == ("rejected", "values", False)
    with pytest.raises(ValueError, match="The kernel for Shift was not accepted: output 0"):
        adopt(Shift, wrong)


def test_a_class_runs_the_kernel_until_it_is_undone(kernel):
    module, own = Marked().eval().requires_grad_(False), vars(Marked).get("forward")
    with adopt(Marked, kernel) as adoption:
        assert "runs the kernel" in explain(module, X) and "original" in explain(module, X.double())
        assert torch.equal(module(X), X + 2)
    assert "no kernel is adopted" in explain(module, X) and vars(Marked).get("forward") is own
    adoption.undo()


def test_one_module_runs_the_kernel_and_another_does_not(kernel):
    module, another = (Marked().eval().requires_grad_(False) for _ in range(2))
    adoption = adopt(module, kernel)
    assert "runs the kernel" in explain(module, X) and "no kernel" in explain(another, X)
    assert torch.equal(module(X), X + 2)
    adoption.undo()
    assert type(module) is Marked


def test_undo_leaves_alone_what_something_else_has_changed(kernel):
    adoption = adopt(Marked, kernel)
    try:
        Marked.forward = Other.forward
        with pytest.warns(KernelLLMWarning, match="Marked was changed after adopt"):
            adoption.undo()
        assert Marked.forward is Other.forward
    finally:
        del Marked.forward


def test_a_kernel_is_for_the_class_that_it_was_judged_for(kernel):
    for target in (Shift, Shift(), Other):
        with pytest.raises(ValueError, match=r"judged for Marked, not for (Shift|Other)"):
            adopt(target, kernel)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Shift, KERNEL), TypeError, "judge needs cases= for Shift, which is not marked"),
        ((torch.relu, KERNEL), TypeError, "takes an nn.Module, its class or a file"),
        ((Marked, 3), TypeError, "takes a candidate's text, its file"),
        ((Marked, values), TypeError, "takes the function `forward`"),
        ((Marked, "no_such_file.py"), PairError, "there is no file no_such_file.py"),
        (("no_such_file.py::Marked", KERNEL), PairError, "There is no file no_such_file.py"),
        ((f"{__file__}::Shift", KERNEL), PairError, "has no target Shift; its targets: Marked"),
    ],
)
def test_mistakes_are_one_sentence(arguments, error, message):
    with pytest.raises(error, match=message):
        judge(*arguments)


def test_a_reference_that_cannot_be_called():
    with pytest.raises(TargetError, match=r"Shift: forward\(x: float32\[2\]\) fails|its inputs"):
        judge(Shift, KERNEL, cases=(torch.ones(2), torch.ones(2)))


def test_judge_is_there_however_the_package_was_imported_and_the_import_stays_cheap():
    script = (
        "import sys, pytest_kernelllm\n"
        "import kernelllm_judge\n"
        "heavy = {'torch', 'triton'} & set(sys.modules)\n"
        "import kernelllm_judge.judging\n"
        "from pytest_kernelllm import judge\n"
        "print(heavy, callable(judge), judge is pytest_kernelllm.judge is kernelllm_judge.judge)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set() True True\n"
    assert {"judge", "adopt"} <= set(pytest_kernelllm.__all__)


def columns(n: int = 6):
    return torch.randn(n, 8)


class Centred(nn.Module):
    """Takes the mean of each column off, and keeps a running one in train mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(8))

    def forward(self, x):
        mean = x.mean(0)
        if self.training:
            self.running.lerp_(mean.detach(), 0.1)
        return x - mean


CENTRED = """
import torch
import triton
import triton.language as tl


@triton.jit
def centre_kernel(x_ptr, out_ptr, mean_ptr, n, width, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows * width + column, rows < n, other=0.0)
    mean = tl.sum(x, axis=0) / n
    tl.store(out_ptr + rows * width + column, x - mean, rows < n)
    tl.store(mean_ptr + column, mean)


def centred(x):
    x = x.contiguous()
    out, mean = torch.empty_like(x), x.new_empty(x.shape[1])
    centre_kernel[(x.shape[1],)](x, out, mean, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[0]))
    return out, mean


class Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, running):
        out, mean = centred(x)
        running.lerp_(mean, 0.1)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return centred(gradient)[0], None


def forward(self, x):
    return Centre.apply(x, self.running)
"""


def test_the_buffers_that_the_original_updates_are_updated_in_training():
    kernel = judge(
        Centred, CENTRED, cases=columns, dims={"n": (2, 100)}, training=True, backward=True, device="cpu"
    )
    assert kernel.accepted, kernel.verdict.reason
    ours, theirs = Centred(), Centred()
    with adopt(ours, kernel):
        for rows in (2, 5, 60):
            x = torch.randn(rows, 8, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            assert "runs the kernel" in explain(ours, x)
            (ours(x) ** 2).sum().backward()
            (theirs(y) ** 2).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
            torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
