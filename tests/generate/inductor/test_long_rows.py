"""Long rows that are read twice: shared by programs that wait for each other, or read backwards. In Triton's interpreter."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import torch
from fusing import errors, inductor, live

from kernelllm_judge.core.records import Candidate
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.backwards import goes_backwards, with_last_loop_backwards
from kernelllm_judge.render.inductor.program import AHEAD, PARTS
from kernelllm_judge.render.inductor.rows_read_twice import shares_rows
from kernelllm_judge.render.render import render
from pytest_kernelllm.generate.search.moves import steps, with_launch

TARGETS = ("LongSoftmax", "LongNorm", "LongGroupNorm", "AnyLength")
NOTES = (
    "long rows in parts, read again from L2",
    "long rows read backwards the second time",
    "groups in parts, read again from L2",
)
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2}
KERNEL = """
def kernel(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp0 = tl.load(in_ptr0 + (r0_index + r0_numel * xindex), r0_mask & xmask, other=0.0)
        _tmp2 = tl.where(r0_mask & xmask, _tmp2 + tmp0, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp3 = tl.load(in_ptr0 + (r0_index + r0_numel * xindex), r0_mask & xmask, other=0.0)
        tl.store(out_ptr0 + (r0_index + r0_numel * xindex), tmp3 - tmp2, r0_mask & xmask)
"""


def function(text: str) -> ast.FunctionDef:
    [parsed] = ast.parse(text).body
    assert isinstance(parsed, ast.FunctionDef)
    return parsed


def written(name: str) -> dict[str, str]:
    """The text of each variant for long rows, by its note."""
    return {each.note: each.text for each in inductor(name, 6) if each.note in NOTES}


def rendered(name: str, text: str) -> Candidate:
    return render(replace(inductor(name)[0], text=text), live(name))


def moved(name: str) -> list[str]:
    """The texts in which rows are shared, as found and one step of the search away."""
    texts = []
    shared = sections.read(next(text for note, text in written(name).items() if "in parts" in note))
    for number, section in enumerate(shared[:1]):
        for kernel, launch in section.launches.items():
            for step in [launch, *steps(launch)]:
                changed = [*shared]
                changed[number] = with_launch(section, kernel, step)
                texts.append(sections.write(changed))
    return texts


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    torch.set_num_threads(1)
    texts = {("LongNorm", 0): written("LongNorm")[NOTES[1]]}
    texts |= {(name, n): text for name in TARGETS for n, text in enumerate(moved(name), 1)}
    candidates = {f"{name}_{n}": (name, rendered(name, text)) for (name, n), text in texts.items()}
    return errors(tmp_path_factory.mktemp("long"), candidates)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_every_way_to_read_long_rows_is_right(results: dict[str, Any], name: str) -> None:
    found = {key: value for key, value in results.items() if key.startswith(f"{name}_")}
    assert len(found) > 8
    for key, error in found.items():
        assert isinstance(error, float), f"{key}: {error}"
        assert error <= TOLERANCE["bfloat16" if "bfloat16" in key else "float32"], key


def test_programs_wait_for_the_parts_of_their_row() -> None:
    source = rendered("LongSoftmax", written("LongSoftmax")[NOTES[0]]).source
    assert "number = tl.atomic_add(finished_ptr, 1, sem='relaxed')" in source
    assert "while summed < ROW_PARTS:" in source
    assert "finished = torch.zeros((1 + batch,), dtype=torch.int32, device=x.device)" in source
    assert source.count("tl.store(scratch_ptr") == 2, "the largest value and the sum of exponentials"


def test_what_is_stored_once_for_a_row_is_stored_by_its_first_part() -> None:
    source = rendered("AnyLength", written("AnyLength")[NOTES[0]]).source
    assert source.count("part == 0") == 1


def test_rows_of_a_sum_of_sizes_have_room() -> None:
    source = rendered("OneMore", written("OneMore")[NOTES[0]]).source
    assert "scratch_1 = torch.empty((8 * (1 + batch),), dtype=torch.float32" in source
    assert "finished = torch.zeros((1 + 1 + batch,), dtype=torch.int32" in source
    assert "one_more_kernel_2[((1 + batch + 32) * 4,)]" in source


def test_rows_beyond_the_last_load_nothing() -> None:
    """Inductor masks no loads of rows where their number is a multiple of its largest block."""
    source = rendered("LongNorm", written("LongNorm")[NOTES[0]]).source
    before, _, inside = source.partition("    if row_start < n_rows:\n")
    assert "row_start = block * BLOCK_ROWS" in before and "    rows = " not in before
    assert inside.lstrip().startswith("rows = row_start + tl.arange(0, BLOCK_ROWS)")


def test_long_rows_are_read_backwards() -> None:
    source = rendered("LongNorm", written("LongNorm")[NOTES[1]]).source
    assert "column_start = last_start - back" in source
    assert "ROW_PARTS" not in source


def test_few_rows_are_not_read_one_by_one() -> None:
    assert written("AnyLength").keys() == {NOTES[0]}


@pytest.mark.parametrize("changed", [{PARTS: 3}, {PARTS: 2048}, {AHEAD: 0}, {"XBLOCK": 2}])
def test_configurations_that_cannot_be_are_refused(changed: dict[str, int]) -> None:
    [section, *rest] = sections.read(written("LongSoftmax")[NOTES[0]])
    [(kernel, launch)] = section.launches.items()
    text = sections.write([with_launch(section, kernel, {**launch, **changed}), *rest])
    with pytest.raises(RenderError, match="cannot be shared"):
        rendered("LongSoftmax", text)


def test_short_rows_have_no_such_variants() -> None:
    assert not {each.note for each in inductor("Softmax", 20)} & set(NOTES)


def test_steps_keep_a_row_shared() -> None:
    [section, *_] = sections.read(written("LongSoftmax")[NOTES[0]])
    [launch] = section.launches.values()
    assert all(step.keys() == launch.keys() and step[PARTS] >= 1 <= step[AHEAD] for step in steps(launch))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tl.float32)\n    for", "tl.float64)\n    for"),
        ("    tmp2 = tl.sum", "    tl.store(out_ptr0 + xindex, tmp0)\n    tmp2 = tl.sum"),
        ("        _tmp2 = tl.where", "        tl.store(out_ptr0 + xindex, tmp0)\n        _tmp2 = tl.where"),
        ("tmp3 - tmp2,", "tmp3 - tmp2 + _tmp2,"),
        ("tl.sum(_tmp2, 1)", "tl.sum(_tmp2, 0)"),
        ("tl.sum(_tmp2, 1)", "tl.sum(_tmp2 + 1, 1)"),
        ("        tmp3 =", "        tmp2 = tmp2 + 1\n        tmp3 ="),
        (
            "    tmp2 = tl.sum(_tmp2, 1)[:, None]\n",
            "    tmp2 = tl.sum(_tmp2, 1)[:, None]\n    tmp5 = tl.load(in_out_ptr0 + xindex, xmask)\n"
            "    tmp6 = tmp5 + tmp2\n    tl.store(in_out_ptr0 + xindex, tmp6, xmask)\n",
        ),
    ],
)
def test_other_kernels_share_no_rows(before: str, after: str) -> None:
    assert shares_rows(function(KERNEL))
    assert KERNEL.count(before) == 1
    assert not shares_rows(function(KERNEL.replace(before, after)))


def test_a_loop_that_sums_runs_forwards() -> None:
    assert goes_backwards(function(KERNEL))
    summing = KERNEL.replace("        tl.store(out", "        _tmp2 = _tmp2 + tmp3\n        tl.store(out")
    assert not goes_backwards(function(summing))
    assert ast.unparse(with_last_loop_backwards(function(summing))) == ast.unparse(function(summing))
