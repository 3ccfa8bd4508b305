"""What one call of the original is, where its backward pass is timed and where it is not."""

import copy

import pytest
import torch
from torch import nn

from kernelllm_judge.core.records import Timing
from kernelllm_judge.timing.baselines import forward_and_backward, forward_pass
from kernelllm_judge.timing.roofline import count_flops
from kernelllm_judge.truth.gradients import forms_of_gradients
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe


def prepared_for(module, x):
    expected = Expected(None, (module(x).detach(),), (), ())
    return PreparedProbe(Probe("default", (), 1), module, {"input": x}, expected, None)


def test_both_passes_move_the_gradients_as_well() -> None:
    module, x = nn.Linear(32, 8), torch.randn(64, 32)
    prepared = prepared_for(module, x)
    gradients = forms_of_gradients(module, prepared.arguments, 1)
    compiled = torch.compile(module, backend="eager")
    forward = forward_pass(prepared, compiled)
    both = forward_and_backward(prepared, compiled, gradients)
    state, given, made = 4 * (32 * 8 + 8), 4 * 64 * 32, 4 * 64 * 8
    assert forward.bytes == state + given + made
    assert both.bytes == 2 * (state + given + made)
    for call in (forward.eager, forward.compiled):
        torch.testing.assert_close(call(), module(x))
    for call in (both.eager, both.compiled):
        outputs, found = call()
        torch.testing.assert_close(outputs, module(x))
        torch.testing.assert_close(found[0], gradients.into[0] @ module.weight)
    assert Timing.__dataclass_fields__["passes"].default == forward.passes


def test_what_does_not_compile_has_no_such_calls() -> None:
    prepared = prepared_for(nn.Tanh(), torch.randn(4))
    gradients = forms_of_gradients(prepared.module, prepared.arguments, 1)
    assert forward_pass(prepared, None).compiled is None
    assert forward_and_backward(prepared, None, gradients).compiled is None


def test_a_compiled_copy_is_differentiated_by_its_own_parameters() -> None:
    """It may have been compiled for an earlier candidate, when the probe was prepared with another copy of the module."""
    module, x = nn.Linear(32, 8), torch.randn(64, 32)
    prepared = prepared_for(module, x)
    gradients = forms_of_gradients(module, prepared.arguments, 1)
    compiled = torch.compile(copy.deepcopy(module), backend="eager")
    both = forward_and_backward(prepared, compiled, gradients)
    assert all(found is not None for found in both.compiled()[1])


class Residual(nn.Module):
    def forward(self, input):
        return input + 1


class Summed(nn.Module):
    def forward(self, input):
        return input.sum(0)


@pytest.mark.parametrize("module", [Residual(), Summed()])
def test_a_gradient_that_is_the_one_that_flows_in_or_repeats_it_moves_nothing(module) -> None:
    prepared = prepared_for(module, torch.randn(64, 32))
    gradients = forms_of_gradients(module, prepared.arguments, 1)
    both = forward_and_backward(prepared, None, gradients)
    assert both.bytes == prepared.bytes + gradients.into[0].nbytes


def test_an_original_may_write_to_its_input_if_that_changes_nothing() -> None:
    module, x = nn.ReLU(inplace=True), torch.rand(8, 16)
    prepared = prepared_for(module, x)
    gradients = forms_of_gradients(module, prepared.arguments, 1)
    assert gradients.in_place == {"input"}
    [found] = forward_and_backward(prepared, None, gradients).eager()[1]
    assert torch.equal(found, gradients.into[0])


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 8))

    def forward(self, input):
        return self.inner(input)


def test_the_operations_of_both_passes_of_modules_in_modules_are_counted() -> None:
    prepared = prepared_for(Nested(), torch.randn(64, 32))
    gradients = forms_of_gradients(prepared.module, prepared.arguments, 1)
    both = forward_and_backward(prepared, None, gradients)
    assert count_flops(both.eager).total == 3 * 2 * 64 * 32 * 8
