"""A call with its backward pass, as the worker makes it once or in a timed loop."""

import pytest
import torch

from kernelllm_judge.worker.backward import BothPasses


def passes(call, named, wrt, into, again=""):
    outputs = [
        None if g is None else {"buffer": g, "shape": list(g.shape), "strides": list(g.stride())}
        for g in into
    ]
    request = {"wrt": wrt, "outputs": outputs, "again": again}
    return BothPasses(call, named, request, lambda buffer: buffer)


@pytest.mark.parametrize("again", ["", "kept", "changed"])
def test_each_call_gives_the_gradients_of_what_lies_there_now(again) -> None:
    x, weight, into = torch.randn(4, 3), torch.nn.Parameter(torch.randn(3)), torch.randn(4, 3)
    both = passes(lambda: x * weight, {"x": x, "self.weight": weight}, ["x", "self.weight"], [into], again)
    for _ in range(2):
        x.copy_(torch.randn(4, 3))
        into.copy_(torch.randn(4, 3))
        outputs = both()
        torch.testing.assert_close(outputs.detach(), x * weight.detach())
        of_x, of_weight = both.gradients
        torch.testing.assert_close(of_x, into * weight.detach())
        torch.testing.assert_close(of_weight, (into * x).sum(0))
    assert (x.requires_grad, weight.requires_grad) == (False, True)


def test_what_nothing_depends_on_has_zeros() -> None:
    x, other = torch.randn(4), torch.randn(2)
    both = passes(lambda: x * 2, {"x": x, "other": other}, ["other", "x"], [torch.ones(4)])
    both()
    assert both.gradients[0].tolist() == [0, 0]
    assert both.gradients[1].tolist() == [2, 2, 2, 2]


def test_outputs_without_gradients_give_zeros() -> None:
    x = torch.randn(4)
    both = passes(lambda: (x.detach() * 2, x.argmax()), {"x": x}, ["x"], [torch.ones(4), None])
    both()
    assert both.gradients[0].tolist() == [0, 0, 0, 0]


def test_the_gradients_of_a_call_that_fails_are_not_those_of_the_one_before() -> None:
    x, fails = torch.randn(4), []

    def call():
        if fails:
            raise ValueError("no")
        return x * 2

    both = passes(call, {"x": x}, ["x"], [torch.ones(4)])
    both()
    fails.append(True)
    with pytest.raises(ValueError, match="no"):
        both()
    with pytest.raises(ValueError, match="shorter"):
        both.gradients  # noqa: B018
