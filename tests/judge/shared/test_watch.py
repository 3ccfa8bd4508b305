"""What torch does during a call is seen, and what it allocates lies between guard zones."""

import ctypes
from functools import partial

import pytest
import torch
from torch import nn

from kernelllm_judge.rules.work import TorchShare
from kernelllm_judge.run.original import torch_work, vendor_kinds
from kernelllm_judge.shared import watch as watch_module
from kernelllm_judge.shared.watch import OperationWatch


def test_memory_that_holds_nothing_yet_is_poisoned_and_other_memory_is_not():
    x = torch.ones(2, 3)
    with OperationWatch():
        unwritten = [torch.empty(5), torch.empty_like(x), x.new_empty(4), torch.empty_strided((2, 3), (1, 2))]
        scalar, turned = torch.full((), 2.5), torch.arange(4).view(2, 2).t().clone()
        zeros, halves = torch.zeros(7, dtype=torch.int64), torch.full((3, 2), 0.5, dtype=torch.float16)
        flags = torch.empty(4, dtype=torch.bool)
    assert all(bool(tensor.isnan().all()) for tensor in unwritten)
    assert unwritten[-1].stride() == (1, 2)
    assert zeros.tolist() == [0] * 7
    assert scalar.tolist() == 2.5
    assert (turned.tolist(), turned.stride()) == ([[0, 2], [1, 3]], (1, 2))
    assert halves.tolist() == [[0.5, 0.5]] * 3
    assert flags.tolist() == [True] * 4


@pytest.mark.parametrize(("element", "where"), [(-1, "before"), (8, "behind"), (8 + 4000, "behind")])
def test_a_write_outside_an_allocation_is_named(element, where):
    with OperationWatch() as watch:
        out = torch.empty(8)
    assert watch.broken_guards() == []
    ctypes.memset(out.data_ptr() + 4 * element, 0, 4)
    [text] = watch.broken_guards()
    assert text.startswith(where)
    assert "float32 [8]" in text


def test_an_odd_number_of_bytes_has_its_guards_too():
    with OperationWatch() as watch:
        out = torch.empty(5, dtype=torch.uint8)
    assert watch.broken_guards() == []
    ctypes.memset(out.data_ptr() + 5, 0, 1)
    [text] = watch.broken_guards()
    assert text.startswith("behind")


def test_a_pattern_copied_from_one_guard_zone_to_another_shows():
    with OperationWatch() as watch:
        one, other = torch.empty(8), torch.empty(8)
    ctypes.memmove(other.data_ptr() + 32, one.data_ptr() + 32, 16)
    assert len(watch.broken_guards()) == 1


def test_freed_memory_is_checked_and_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(watch_module, "HELD", 1 << 20)
    with OperationWatch() as watch:
        kept = torch.empty(8)
        for number in range(100):
            passing = torch.empty(1 << 16)
            if number == 50:
                ctypes.memset(passing.data_ptr() + passing.nbytes, 0, 4)
        passing = None
        torch.empty(1 << 18)
    assert len(watch._blocks) < 12
    ctypes.memset(kept.data_ptr() - 4, 0, 4)
    assert [text.split(" a tensor")[0] for text in watch.broken_guards()] == ["behind", "before"]


def test_memory_that_is_still_in_use_keeps_its_guards(monkeypatch):
    monkeypatch.setattr(watch_module, "HELD", 1 << 20)
    with OperationWatch() as watch:
        many = [torch.empty(1 << 16) for _ in range(100)]
        views = [tensor[5:] for tensor in many]
        del many
        torch.empty(1 << 22)
    for view in views:
        ctypes.memset(view.data_ptr() - 20 - 4, 0, 4)
    assert len(watch.broken_guards()) == 100


def test_operations_are_counted_with_the_elements_they_touch():
    x = torch.ones(10, 20)
    with OperationWatch() as watch:
        (x.view(200) * 2).sum()
        with watch.unguarded():  # a launch, in which Triton calls the candidate's functions
            x.exp()
    assert watch.elements["aten::mul"] == 200
    assert watch.elements["aten::sum"] == 200
    assert watch.elements["aten::exp"] == 200


def assess(call, *, like=lambda: None, elements=1000):
    with OperationWatch() as original:
        like()
    with OperationWatch() as watch:
        call()
    work = torch_work(watch.elements, vendor_kinds(original.elements))
    return sum(work.values()) / elements, TorchShare().excess(work, elements)


X = torch.ones(10, 100)
SQUARE = torch.ones(32, 32)


def test_layout_casts_and_small_glue_are_not_work():
    def call():
        rows = X.t().contiguous().to(torch.float64).reshape(-1, 10)
        torch.empty_like(rows)
        X[:, :1].sum()

    share, excess = assess(call)
    assert excess == ""
    assert share < 0.1


def test_computing_with_torch_is_work_and_is_named():
    share, excess = assess(lambda: torch.softmax(X, -1))
    assert share >= 1.0
    assert "softmax" in excess


def product():
    return SQUARE @ SQUARE


def test_a_matrix_product_is_left_to_torch_only_where_the_target_leaves_it_too():
    assert assess(product, like=product)[1] == ""
    assert "mm" in assess(product)[1]
    assert "mm" in assess(product, like=lambda: torch.softmax(SQUARE, -1))[1]


def test_the_library_work_inside_a_layer_that_torch_runs_as_one_operation_is_left_to_it():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()

    def one_operation():
        with torch.no_grad():
            layer(torch.ones(2, 8, 16))

    heads = torch.ones(2, 2, 8, 8)
    attention = partial(nn.functional.scaled_dot_product_attention, heads, heads, heads)
    assert assess(attention, like=one_operation)[1] == ""
    assert assess(product, like=one_operation)[1] == ""
    assert "softmax" in assess(lambda: torch.softmax(X, -1), like=one_operation)[1]
    assert "transformer_encoder_layer" in assess(one_operation, like=one_operation, elements=100)[1]


def test_a_guarded_tensor_starts_its_storage_like_any_fresh_one():
    with OperationWatch() as watch:
        out = torch.empty(4, 8)
        out.as_strided((4, 4), (8, 1), 4).fill_(1.0)
    assert out.storage_offset() == 0
    assert bool((out[:, 4:] == 1).all())
    assert watch.broken_guards() == []
