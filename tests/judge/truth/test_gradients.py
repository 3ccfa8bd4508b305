"""Reference gradients, and that wrong gradients are found."""

import numpy
import pytest
import torch
from torch import nn

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.calls import perturb, perturbation
from kernelllm_judge.truth.gradients import (
    LAYOUTS,
    NoGradients,
    both_passes,
    expected_gradients,
    flat,
    forms_of_gradients,
)
from kernelllm_judge.truth.numerics import compare

POLICY = Policy()


class Norm(nn.Module):
    """Casts to float32 by name; has a frozen parameter, a buffer and an integer output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.frozen = nn.Parameter(torch.ones(64), requires_grad=False)
        self.register_buffer("offset", torch.zeros(64))

    def forward(self, x, scale):
        wide = x.float()
        out = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        out = out.to(x.dtype) * self.weight * scale + self.frozen + self.offset
        return out, out.argmax(-1)


def pulled(module, arguments, **more):
    perturbations = [perturbation(step, 1, torch.device("cpu")) for step in (1e-6, -1e-6)]
    return expected_gradients(module, arguments, 1, POLICY, perturbations, **more)


def rows(seed=0, dtype=torch.float32):
    return torch.randn(6, 64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_hand(module, arguments, into):
    """The same gradients, by ordinary means."""
    inputs = {k: v.clone().requires_grad_() for k, v in arguments.items()}
    module(**inputs)[0].backward(into)
    findings = {**{k: v.grad for k, v in inputs.items()}, "self.weight": module.weight.grad}
    module.zero_grad()
    return findings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_gradients_pass_and_each_wrong_one_is_found(dtype):
    module = perturb(Norm().to(dtype), 1)
    arguments = {"x": rows(dtype=dtype), "scale": rows(1, dtype)}
    gradients = pulled(module, arguments)
    assert gradients.names == ("x", "scale", "self.weight")
    assert gradients.into[1] is None
    assert gradients.trivial is None
    right = by_hand(module, arguments, gradients.into[0])
    for i, name in enumerate(gradients.names):
        assert compare(right[name], gradients.expected, i, POLICY, None).passed, name
        for wrong in (right[name] * 1.1, torch.zeros_like(right[name]), right[name].roll(1)):
            assert not compare(wrong, gradients.expected, i, POLICY, None).passed, name


def test_half_precision_inside_is_found():
    module = perturb(Norm(), 1)
    arguments = {"x": rows(), "scale": rows(1)}
    gradients = pulled(module, arguments)
    halved = {k: v.bfloat16() for k, v in arguments.items()}
    wrong = by_hand(perturb(Norm(), 1).bfloat16(), halved, gradients.into[0].bfloat16())
    for i, name in enumerate(gradients.names):
        assert not compare(wrong[name].float(), gradients.expected, i, POLICY, None).passed, name


def test_gradients_are_exact_in_float64_although_the_module_asks_for_less():
    module, x = Norm(), rows()
    gradients = pulled(module, {"x": x, "scale": rows(1)})
    wide = Norm().double()
    wide.forward = lambda x, scale: (nn.functional.rms_norm(x, (64,), wide.weight, 1e-6) * scale,)
    exact = by_hand(wide, {"x": x.double(), "scale": rows(1).double()}, gradients.into[0].double())
    torch.testing.assert_close(gradients.expected.exact[0], exact["x"], rtol=1e-12, atol=1e-12)


def test_what_no_output_depends_on_has_no_gradient():
    class First(nn.Module):
        def forward(self, x, y, labels):
            return x.sin()

    labels = torch.arange(6)
    assert pulled(First(), {"x": rows(), "y": rows(1), "labels": labels}).names == ("x",)


def test_an_original_without_gradients_is_reported():
    class Rounds(nn.Module):
        def forward(self, x):
            return x.argmax(-1)

    with pytest.raises(NoGradients, match="no output of the original depends"):
        pulled(Rounds(), {"x": rows()})


def test_module_and_inputs_are_left_as_they_were():
    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64))
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return x.mul_(2) * self.weight

    module, x = Doubles(), rows()
    assert pulled(module, {"x": x}).names == ("x", "self.weight")
    assert torch.equal(x, rows())
    assert not x.requires_grad
    assert module.weight.grad is None
    assert float(module.calls) == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_outputs_lie_in_memory_as_training_leaves_them(layout):
    module, arguments = perturb(Norm(), 1), {"x": rows(), "scale": rows(1)}
    gradients = pulled(module, arguments, incoming=layout)
    [into] = [each for each in gradients.into if each is not None]
    assert into.stride() == {"expanded": (0, 0), "transposed": (2, 12)}[layout]
    assert not bool(into.isnan().any())
    assert len(flat(into)) == {"expanded": 1, "transposed": 2 * into.numel() - 1}[layout]
    found = by_hand(module, arguments, into)
    for i, name in enumerate(gradients.names):
        assert compare(found[name], gradients.expected, i, POLICY, None).passed


class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def test_gradients_that_cancel_are_right_within_the_rounding_of_what_cancels():
    found = []
    for seed in range(20):
        arguments = {"x": rows(seed)}
        gradients = pulled(Softmax(), arguments, incoming="expanded")
        y = torch.exp(arguments["x"] - arguments["x"].amax(-1, keepdim=True))
        y = y / y.sum(-1, keepdim=True)
        [into] = gradients.into
        got = y * (into - (y * into).sum(-1, keepdim=True))
        assert compare(got, gradients.expected, 0, POLICY, None).passed, seed
        found.append(compare(got + 1e-3 * y * into, gradients.expected, 0, POLICY, None).passed)
    assert not any(found)


def test_what_an_index_that_comes_often_adds_up_may_drift():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(40, 16))

        def forward(self, ids):
            return nn.functional.one_hot(ids, 40).to(self.table.dtype) @ self.table

    ids = torch.cat([torch.full((1 << 15,), 39), torch.arange(40)])
    gradients = pulled(Lookup(), {"ids": ids})
    [into] = gradients.into
    in_order = torch.zeros(40, 16)
    numpy.add.at(in_order.numpy(), ids.numpy(), into.numpy())
    assert compare(in_order, gradients.expected, 0, POLICY, None).passed
    in_order[39] -= into[0]
    assert not compare(in_order, gradients.expected, 0, POLICY, None).passed


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x.flatten(2).transpose(1, 2)).view(len(x), -1)


def test_an_original_may_view_what_a_norm_returns():
    gradients = pulled(Patches(), {"x": torch.randn(2, 8, 4, 4)})
    assert gradients.names == ("x", "self.norm.weight", "self.norm.bias")


class Exact(nn.Module):
    def forward(self, x):
        result = x.exp()
        if x.dtype == torch.float32 and not torch.equal(result, x.clone().exp_()):
            raise ValueError("exp has another result")
        return result


def test_an_original_that_checks_its_own_rounding_still_has_gradients():
    assert pulled(Exact(), {"x": 8 * torch.randn(6, 64)}).names == ("x",)


@pytest.mark.parametrize("way", [lambda module: module, torch.compile], ids=["eager", "compiled"])
def test_both_passes_may_be_called_again_and_leave_everything_as_it_was(way):
    module = perturb(Norm(), 1)
    arguments = {"x": rows(), "scale": rows(1)}
    gradients = pulled(module, arguments)
    call = both_passes(way(module), arguments, gradients)
    right = by_hand(module, arguments, gradients.into[0])
    for _ in range(2):
        outputs, found = call()
        assert len(outputs) == 2
        for name, gradient in zip(gradients.names, found, strict=True):
            torch.testing.assert_close(gradient, right[name])
    assert not any(v.requires_grad for v in arguments.values())
    assert module.weight.grad is None


def test_the_forms_of_gradients_are_theirs_without_data():
    module, arguments = perturb(Norm(), 1), {"x": rows(), "scale": rows(1)}
    forms, gradients = forms_of_gradients(module, arguments, 1), pulled(module, arguments)
    assert forms.names == gradients.names
    assert torch.equal(forms.into[0], gradients.into[0])
    assert forms.into[1] is None
    for form, leaf in zip(forms.expected.original, gradients.expected.original, strict=True):
        assert (form.shape, form.dtype, form.device.type) == (leaf.shape, leaf.dtype, "meta")


def test_what_honest_gradients_are_off_by_elsewhere_is_allowed_as_well():
    module = perturb(Norm().to(torch.bfloat16), 1)
    arguments = {"x": rows(dtype=torch.bfloat16), "scale": rows(1, torch.bfloat16)}
    further = [{"x": rows(seed, torch.bfloat16), "scale": rows(seed + 1, torch.bfloat16)} for seed in (2, 4)]
    few, many = (pulled(module, arguments, further=some).expected.bounds for some in ((), further))
    assert all(bool((more.worst >= less.worst).all()) for less, more in zip(few, many, strict=True))
    assert any(bool((more.worst > less.worst).any()) for less, more in zip(few, many, strict=True))
