"""Which sizes vary where a marker names none."""

import textwrap

import pytest
import torch

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from kernelllm_runtime import triton_candidate
"""


@pytest.fixture
def target(tmp_path):
    """Loads a target whose forward and inputs are given as text."""

    def made(forward: str, inputs: str, marker: str = "", setup: str = "", before: str = "") -> LiveTarget:
        text = f"""
        def inputs({inputs.partition(":")[0]}):
            return {inputs.partition(":")[2]}

        @triton_candidate(inputs=inputs, {marker})
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                {setup}

            def forward(self, {forward.partition(":")[0]}):
                {forward.partition(":")[2]}
        """
        (tmp_path / "layers.py").write_text(HEAD + textwrap.dedent(before) + textwrap.dedent(text))
        [found] = scan_file(tmp_path / "layers.py", tmp_path).targets
        return load_target(tmp_path, found)

    return made


def test_a_loss_varies_in_its_rows(target):
    live = target(
        "logits, labels: return F.cross_entropy(logits, labels)",
        ": (torch.randn(64, 100), torch.randint(100, (64,)))",
    )
    (case,) = live.cases
    assert case.domain.dims == {"rows": (1, 64)}
    assert case.sizes == {"rows": 64}
    assert case.domain.inputs == {
        "logits": TensorSpec("float32", ("rows", 100)),
        "labels": TensorSpec("int64", ("rows",)),
    }
    call = live.inputs(case, seed=3, sizes={"rows": 5})
    assert [tuple(x.shape) for x in call.kwargs.values()] == [(5, 100), (5,)]
    whole = live.inputs(case, seed=3)
    assert torch.equal(whole.kwargs["labels"][:5], call.kwargs["labels"])


def test_sequences_vary_in_both_leading_axes(target):
    live = target("x: return F.gelu(x)", ": torch.randn(4, 16, 8)", 'dtypes=("float32", "bfloat16")')
    for case in live.cases:
        assert case.domain.dims == {"batch": (1, 4), "seq": (1, 16)}
        assert case.domain.inputs["x"].shape == ("batch", "seq", 8)


def test_an_empty_mapping_pins_all_sizes(target):
    live = target("x: return F.gelu(x)", ": torch.randn(4, 16)", "dims={}")
    assert live.cases[0].domain.dims == {}


def test_named_ranges_win(target):
    live = target("x: return F.gelu(x)", "n=4, m=16: torch.randn(n, m)", 'dims={"n": (2, 9)}')
    assert live.cases[0].domain.dims == {"n": (2, 9)}


def test_sizes_that_the_callable_takes_are_varied_by_calling_it(target):
    live = target(
        "x: return self.layer(x)",
        "count=6, width=16, seed=7: torch.randn(count, width)",
        setup="self.layer = nn.Linear(16, 16)",
    )
    assert live.cases[0].domain.dims == {"count": (1, 6)}
    assert live.cases[0].domain.inputs["x"].shape == ("count", 16)


@pytest.mark.parametrize(
    "forward",
    [
        "x: return x.reshape(8, 4) * 2",
        "x: assert x.shape == (8, 4); return x * 2",
        "x: return x @ x.new_ones(4, 8) + torch.arange(8, device=x.device)[:, None]",
        "x: return x + torch.arange(8.0)[:, None]",
    ],
)
def test_what_runs_at_its_own_size_only_varies_in_none(target, forward):
    assert target(forward, ": torch.randn(8, 4)").cases[0].domain.dims == {}


def test_integers_that_name_rows_of_what_would_vary_pin_it(target):
    live = target("table, index: return table[index]", ": (torch.randn(50, 4), torch.arange(30, 50))")
    assert live.cases[0].domain.dims == {}


def test_labels_keep_their_classes(target):
    live = target(
        "logits, labels: return F.cross_entropy(logits, labels)",
        ": (torch.randn(4, 9, 9), torch.randint(5, 9, (4, 9)))",
    )
    assert live.cases[0].domain.dims == {"batch": (1, 4)}


def test_a_variance_over_the_batch_needs_two(target):
    live = target(
        "x: return self.norm(x)", ": torch.randn(8, 4)", "training=True", "self.norm = nn.BatchNorm1d(4)"
    )
    assert live.cases[0].domain.dims == {"rows": (2, 8)}


def test_tuples_are_cut_part_by_part(target):
    live = target(
        "x, rope: return x * rope[0] + rope[1]",
        ": (torch.randn(2, 6, 4), (torch.randn(1, 6, 4), torch.randn(1, 6, 4)))",
    )
    case = live.cases[0]
    assert case.domain.dims == {"batch": (1, 2), "seq": (1, 6)}
    call = live.inputs(case, 0, {"batch": 1, "seq": 3})
    assert call.kwargs["x"].shape == (1, 3, 4) and call.kwargs["rope"][1].shape == (1, 3, 4)


def test_what_decides_by_values_varies_too(target):
    live = target("x: return x * 2 if bool(x.sum() > 0) else x", ": torch.randn(8, 4)")
    assert live.cases[0].domain.dims == {"rows": (1, 8)}


def test_what_calls_keep_stays_of_values(target):
    """A run without values would leave such a tensor in the cache."""
    live = target(
        "x: return x + table(len(x))",
        ": torch.randn(5, 3)",
        before="""
        import functools
        @functools.lru_cache(maxsize=None)
        def table(n): return torch.arange(n)[:, None]
        """,
    )
    assert live.cases[0].domain.dims == {"rows": (1, 5)}


def test_what_a_call_keeps_does_not_reach_the_target(target):
    live = target(
        "x: self.kept = x if self.kept is None else self.kept; return x * 2",
        ": torch.randn(5, 3)",
        setup="self.kept = None",
    )
    assert live.build(live.cases[0]).kept is None
