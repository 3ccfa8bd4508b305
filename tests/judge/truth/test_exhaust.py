"""All values of an input are run where each element of the outputs depends on one of its elements."""

import pytest
import torch
import torch.nn.functional as F

from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.truth import exhaust
from kernelllm_judge.truth.exhaust import Every, depends_on_single_elements, read_kind
from kernelllm_judge.truth.rows import as_rows
from kernelllm_judge.truth.variations import vary

X, Y = torch.randn(2, 12, 40, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.linspace(0.5, 2, 40)


def asks(function, name="x", drawn=torch.randn):
    some, others = ({"x": drawn(12, 40), "y": drawn(12, 40)} for _ in range(2))
    return depends_on_single_elements(lambda given: [function(**given)], some, others, name)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: F.gelu(x),
        lambda x, y: x * torch.sigmoid(y),
        lambda x, y: torch.relu(x),
        lambda x, y: (x * WEIGHT).T,
        lambda x, y: x.round(),
        lambda x, y: torch.where(x > 0, x / 0, x),
        lambda x, y: torch.stack([x, x * x]),
        lambda x, y: x + y.sum(),
    ],
)
def test_outputs_that_depend_on_single_elements(function):
    assert asks(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.softmax(-1),
        lambda x, y: x.cumsum(-1),
        lambda x, y: x[:, :20] * torch.sigmoid(x[:, 20:]),
        lambda x, y: x.sum(-1),
        lambda x, y: torch.relu(x) + 1e-4 * x.roll(1, 0),
        lambda x, y: x.sort(-1).values,
        lambda x, y: y,
    ],
)
def test_outputs_that_do_not(function):
    assert not asks(function)


def test_each_input_is_asked_about_by_itself():
    assert asks(lambda x, y: x + y.sum(), "x")
    assert not asks(lambda x, y: x + y.sum(), "y")


def run_all(dtype, shape, dims, drawn=torch.randn, most=1 << 13, accepts=lambda *_: True, nonfinite=True):
    """Returns the sizes and values of all probes of an input."""
    name = str(dtype).removeprefix("torch.")
    domain = Domain({"x": TensorSpec(name, shape)}, {}, dims)
    found = []
    for sizes, kind in exhaust.asked(domain, dims, most, nonfinite):
        x = drawn([sizes.get(each, each) for each in shape]).to(dtype)
        changes = vary({"x": x}, kind, 1, (), accepts)
        found.append(changes["x"](x))
    return found


def few(size):
    return torch.randint(0, 9, size)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int16])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [(("n", "d"), {"n": (1, 64), "d": (1, 1024)}), (("n", 48), {"n": (1, 4096)}), ((300, 999), {})],
)
def test_all_values_of_16_bits_are_run(dtype, shape, dims):
    values = run_all(dtype, shape, dims, torch.randn if dtype.is_floating_point else few)
    assert len(torch.cat([value.flatten() for value in values]).view(torch.int16).unique()) == 1 << 16


def test_values_of_one_row_are_of_one_size():
    values = torch.cat(run_all(torch.bfloat16, ("n", "d"), {"n": (1, 64), "d": (1, 1024)}))
    ordinary = values[(values.float().abs().amax(1) < 1e30) & (values.float().abs().amin(1) > 1e-30)].float()
    assert len(ordinary) > 300
    assert float((ordinary.abs().amax(1) / ordinary.abs().amin(1)).max()) < 2
    assert bool((ordinary.sign() == ordinary[:, :1].sign()).all())


def test_float32_has_every_exponent_and_many_mantissas():
    values = torch.cat(run_all(torch.float32, ("n", "d"), {"n": (1, 1 << 16), "d": (1, 512)}, most=1 << 20))
    bits = values.flatten().view(torch.int32)
    assert len(bits.unique()) > 1_000_000
    assert len((bits >> 23).unique()) == 512
    assert len((bits & 0x7FFFFF).unique()) > 450_000


def test_nan_and_infinities_may_be_left_out():
    values = torch.cat(run_all(torch.float16, ("n", 128), {"n": (1, 512)}, nonfinite=False))
    assert bool(values.isfinite().all())
    assert len(values.view(torch.int16).unique()) == (1 << 16) - (1 << 11)


def test_values_are_those_that_the_original_accepts():
    def in_range(arguments, names):
        return bool(((arguments["x"] >= 0) & (arguments["x"] < 1e30)).all())

    values = torch.cat(
        run_all(torch.bfloat16, ("n", 64), {"n": (1, 512)}, torch.rand, accepts=in_range)
    ).float()
    assert float(values.min()) == 0
    assert 1e16 < float(values.max()) < 1e30


def test_another_input_keeps_its_values_but_for_a_factor_for_each_row():
    changes = vary({"x": X, "y": Y}, Every("x", 0, 1).kind, 1, (), lambda *_: True)
    assert set(changes) == {"x", "y"}
    ratio = as_rows(changes["y"](Y) / Y)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    assert len(ratio[:, 0].unique()) > 2


def test_a_kind_is_read_as_it_is_written():
    for every in (Every("x", 2, 8), Every("x", 2, 8, finite=True)):
        assert read_kind(every.kind) == every
    assert read_kind("×8") is None
