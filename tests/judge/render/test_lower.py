"""Lowering to plain ``tl``: every device function against torch on edge values, and what lowering refuses."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm_judge.core.syntax import stored_names
from kernelllm_judge.render.inductor.tidy import tidy
from kernelllm_judge.render.lower import device_functions, device_names, lower
from kernelllm_judge.render.render import RenderError

ROOT = Path(__file__).parents[3]
INF, NAN = float("inf"), float("nan")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, INF, -INF, NAN]
SMALL = [s * 10.0**-e for e in (1, 2, 3, 4, 5, 6, 7, 8, 12, 20) for s in (1, -1)]
LARGE = [9.0, -9.0, 20.5, -20.5, 80.0, -80.0, 100.0, -100.0, 1e6, -1e6, 3e38, -3e38, 4194304.5, 8388609.0]
VALUES = torch.tensor([*EDGES, *SMALL, *LARGE, *torch.linspace(-3, 3, 18).tolist()])
assert VALUES.numel() == 64

UNARY = {"log1p": torch.log1p, "normal_cdf": torch.special.ndtr}
LEFT = VALUES.repeat_interleave(64)
RIGHT = VALUES.repeat(64)
BINARY = {"maximum": torch.maximum, "minimum": torch.minimum}
WHOLE = torch.tensor([-7, -3, -1, 1, 2, 3, 5, 8])
INTEGERS = {
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_remainder": torch.remainder,
}
ROWS = torch.stack(
    [torch.linspace(-2, 2, 16), torch.full((16,), 3.0), torch.full((16,), -INF), torch.randn(16)]
)
ROWS[3, 5] = NAN
ROWS[3, 9] = NAN
ALONG = {
    "nan_max": lambda x: x.amax(1),
    "nan_min": lambda x: x.amin(1),
    "any_true": lambda x: x.any(1),
    "product": lambda x: x.prod(1),
}
EQUAL = torch.tensor([[1.0, -0.0, 3.0, 0.0, 1.0, 0.0, 3.0, -2.0]] * 2)
SORTED = {
    "floats": ROWS,
    "ties and zeros": EQUAL,
    "half precision": EQUAL.to(torch.bfloat16),
    "integers": torch.tensor([[3, -(2**31), 2**31 - 1, 0, 3, -1, 2**31 - 1, 7]] * 2, dtype=torch.int32),
    "booleans": torch.tensor([[True, False, True, False]] * 2),
}
MEASURED = {"welford_joined": 5e-6, "": 5e-6}
"""Allowed relative error where it is more than the usual: numpy's float32 functions have some of their own, and a
variance around a mean of 100 ("") loses two digits to cancellation."""
ABSOLUTE = {"normal_cdf": 1.5e-7}
"""Allowed absolute error."""


def jobs() -> dict[tuple[str, str], tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Inputs and expected outputs by kind of kernel and function."""
    torch.manual_seed(0)
    made: dict[tuple[str, str], Any] = {}
    for name, function in UNARY.items():
        made["unary", name] = [VALUES], [function(VALUES)]
    for name, function in BINARY.items():
        made["binary", name] = [LEFT, RIGHT], [function(LEFT, RIGHT)]
    for name, function in INTEGERS.items():
        a, b = WHOLE.repeat_interleave(8), WHOLE.repeat(8)
        made["binary", name] = [a, b], [function(a, b)]
    base, exponent = torch.arange(-4, 4).repeat_interleave(8), torch.arange(8).repeat(8)
    made["binary", "pow_integer"] = [base, exponent], [base**exponent]
    for name, function in ALONG.items():
        made["along", name] = [ROWS], [function(ROWS)]
    made["indexed", "max_with_index"] = [ROWS], [ROWS.amax(1), ROWS.argmax(1).int()]
    made["indexed", "min_with_index"] = [ROWS], [ROWS.amin(1), ROWS.argmin(1).int()]
    stacked = torch.stack([LEFT, RIGHT])
    made["pairs", "maximum_with_index"] = [LEFT, RIGHT], [stacked.amax(0), stacked.argmax(0).int()]
    made["pairs", "minimum_with_index"] = [LEFT, RIGHT], [stacked.amin(0), stacked.argmin(0).int()]
    for name, values in SORTED.items():
        # Of the last rows of 8 and 16 values, those behind the count are no part of it.
        count = values.shape[1] - (values.shape[1] > 4)
        for kind in ("ascending", "descending"):
            rows = values[:, :count].sort(dim=1, descending=kind == "descending", stable=True)
            made[kind, f"sort_with_index of {name}"] = [values], [rows.values, rows.indices.int()]
    x = torch.randn(6, 16) + 100
    squares = (x.double() - x.double().mean()).square().sum().float().reshape(1)
    moments = [x.double().mean().float().reshape(1), squares, torch.tensor([96.0])]
    made["welford", ""] = [x], moments
    made["welford", "welford_joined"] = [x], moments
    y = torch.randn(6, 16) * 30
    y[:, 3] = -INF
    largest_and_sum = [y.max().reshape(1), (y.double() - y.max()).exp().sum().float().reshape(1)]
    made["online", ""] = [y], largest_and_sum
    made["online", "online_softmax_joined"] = [y], largest_and_sum
    return made


JOBS = jobs()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[torch.Tensor]]:
    folder = tmp_path_factory.mktemp("device")
    torch.save(JOBS, folder / "given.pt")
    command = [sys.executable, str(ROOT / "tests/data/run_device.py"), "given.pt", "taken.pt"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(torch.load(folder / "taken.pt"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job[1] or job[0])
def test_device_function_agrees_with_torch(
    results: dict[tuple[str, str], list[torch.Tensor]], job: tuple[str, str]
) -> None:
    for got, expected in zip(results[job], JOBS[job][1], strict=True):
        if not expected.is_floating_point():
            assert torch.equal(got, expected)
        else:
            tolerance = MEASURED.get(job[1], 1e-6)
            torch.testing.assert_close(
                got, expected, rtol=tolerance, atol=ABSOLUTE.get(job[1], 1e-37), equal_nan=True
            )


def kernel(body: str, parameters: str = "in_ptr0, out_ptr0, ks0") -> ast.FunctionDef:
    function = ast.parse(f"@old.decorator\n@triton.jit\ndef kernel({parameters}):\n    {body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def lowered(body: str) -> str:
    return ast.unparse(lower(kernel(body)).body[-1])


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("a = libdevice.rsqrt(ks0)", "a = tl.rsqrt(ks0)"),
        ("a = tl_math.exp(ks0)", "a = tl.exp(ks0)"),
        ("a = libdevice.tanh(ks0)", "a = libdevice.tanh(ks0)"),
        ("a = triton_helpers.max2(ks0, 1)[:, None]", "a = nan_max(ks0, 1)[:, None]"),
        ("a = tl_math.tanh(ks0)", "a = libdevice.tanh(ks0)"),
        ("a = tl.clamp(ks0, 0.0, 6.0)", "a = tl.clamp(ks0, 0.0, 6.0)"),
        ("a = libdevice.clamp(ks0, 0.0, 6.0)", "a = tl.clamp(ks0, 0.0, 6.0)"),
        ("a = tl_math.sigmoid(ks0)", "a = tl.sigmoid(ks0)"),
        ("a = libdevice.erf(ks0)", "a = tl.erf(ks0)"),
        ("tl.device_assert(ks0 < 3, 'out of bounds')\n    a = 1", "a = 1"),
    ],
)
def test_calls_become_plain_triton(written: str, plain: str) -> None:
    assert lowered(written) == plain


def test_a_scan_that_adds_is_a_cumulative_sum() -> None:
    source = "def add(a, b):\n    c = a + b\n    return c"
    helper = ast.parse(source).body[0]
    assert isinstance(helper, ast.FunctionDef)
    function = lower(kernel("a, = tl.associative_scan((ks0,), 1, add)"), [helper])
    assert ast.unparse(function.body[-1]) == "a = tl.cumsum(ks0, 1)"


@pytest.mark.parametrize(
    "call",
    ["libdevice.gelu(ks0)", "triton_helpers.bucketize_binary_search(ks0)", "missing(ks0)", "tl.gelu(ks0)"],
)
def test_what_has_no_plain_form_is_named(call: str) -> None:
    with pytest.raises(RenderError, match=call.split("(")[0]):
        lowered(f"a = {call}")


def test_the_decorators_of_the_compiler_go() -> None:
    assert [ast.unparse(d) for d in lower(kernel("pass")).decorator_list] == ["triton.jit"]


def test_functions_come_with_those_they_call() -> None:
    text = "\n".join(device_functions(["nan_max"]))
    assert "def maximum" in text and text.index("def maximum") < text.index("def nan_max")
    compile(text, "<device>", "exec")


def test_no_variable_of_a_device_function_has_the_name_of_another_one() -> None:
    for source in device_functions(device_names()):
        assert not stored_names(ast.parse(source)) & device_names()


def test_every_device_function_is_tested() -> None:
    tested = {name.partition(" ")[0] for _, name in JOBS} | {
        "_better_with_index",
        "_first_index",
        "_multiply",
        "at_least_1d",
        "select_one",
        "welford_next",
        "welford_total",
        "online_softmax_next",
        "online_softmax_total",
    }
    assert device_names() == tested - {""}


def tidied(*lines: str) -> list[str]:
    function = kernel("\n    ".join(lines))
    return [ast.unparse(statement) for statement in tidy(function, {}).body]


def test_dead_assignments_go_and_stores_stay() -> None:
    body = tidied("roffset = 0", "tmp0 = tl.load(in_ptr0)", "tmp1 = tmp0 * 2", "tl.store(out_ptr0, tmp0)")
    assert body == ["tmp0 = tl.load(in_ptr0)", "tl.store(out_ptr0, tmp0)"]


def test_sizes_are_cast_by_function_also_after_they_moved() -> None:
    body = tidied("tmp0 = ks0 * 4", "tl.store(out_ptr0, tl.load(in_ptr0) / tmp0.to(tl.float32))")
    assert body == ["tl.store(out_ptr0, tl.load(in_ptr0) / tl.cast(ks0 * 4, tl.float32))"]


def test_sizes_are_tensors_before_they_are_broadcast() -> None:
    body = tidied("tmp0 = tl.broadcast_to(15 * ks0, [64]).to(tl.float32)", "tl.store(out_ptr0, tmp0)")
    assert body == ["tl.store(out_ptr0, tl.broadcast_to(tl.cast(15 * ks0, tl.int64), [64]).to(tl.float32))"]
    loaded = tidied("tmp0 = tl.load(in_ptr0)", "tl.store(out_ptr0, tl.broadcast_to(tmp0 * ks0, [64]))")
    assert loaded[1] == "tl.store(out_ptr0, tl.broadcast_to(tmp0 * ks0, [64]))"


def test_a_load_never_moves_past_a_store() -> None:
    body = tidied("tmp0 = tl.load(in_ptr0)", "tl.store(out_ptr0, ks0)", "tl.store(out_ptr0 + 1, tmp0)")
    assert body[0] == "tmp0 = tl.load(in_ptr0)"


def test_a_temporary_does_not_move_past_a_change_of_what_it_needs() -> None:
    body = tidied("tmp1 = ks0 + 1", "ks0 = tl.load(in_ptr0)", "tl.store(out_ptr0 + ks0, tmp1)")
    assert body == ["tmp1 = ks0 + 1", "ks0 = tl.load(in_ptr0)", "tl.store(out_ptr0 + ks0, tmp1)"]


def test_an_alias_ends_where_its_source_changes() -> None:
    body = tidied("a = ks0", "ks0 = tl.load(in_ptr0)", "tl.store(out_ptr0 + ks0, a)")
    assert body[0] == "a = ks0" and body[-1].endswith("a)")


def test_integer_constants_stay_typed_in_arithmetic() -> None:
    body = tidied("tmp0 = tl.full([1], 8, tl.int64)", "tl.store(out_ptr0, ks0 * tmp0, ks0 < tmp0)")
    assert body[-1] == "tl.store(out_ptr0, ks0 * tl.full([1], 8, tl.int64), ks0 < 8)"


def test_an_accumulator_of_a_loop_stays() -> None:
    body = tidied(
        "acc = tl.full([8], 0, tl.float32)",
        "for i in range(0, ks0, 8):",
        "    tmp0 = tl.load(in_ptr0 + i)",
        "    acc = acc + tmp0",
        "tl.store(out_ptr0, tl.sum(acc, 0))",
    )
    assert len(body) == 3 and "acc = acc + tmp0" in body[1]
