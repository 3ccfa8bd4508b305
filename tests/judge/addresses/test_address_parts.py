"""The parts of a proof: a worker's report, TTIR, numbers of few bits, formulas, and digits."""

import time

import numpy as np
import pytest

from kernelllm_judge.addresses.digits import Digits
from kernelllm_judge.addresses.expressions import Expressions, Numbers, Ranges
from kernelllm_judge.addresses.formulas import Formulas
from kernelllm_judge.addresses.launches import Untraced, read
from kernelllm_judge.addresses.polynomials import Polynomial
from kernelllm_judge.addresses.prove import Prover
from kernelllm_judge.addresses.scene import Target, scene_of
from kernelllm_judge.addresses.slices import Walk
from kernelllm_judge.addresses.solver import Place
from kernelllm_judge.addresses.ttir import Unparsed, parse
from kernelllm_judge.handle import WorkerDied

REPORT = {
    "bytes": [64],
    "launches": [{"kernel": "k#0", "grid": [1, 1, 1], "arguments": [{"storage": 0, "offset": 0}, 3, None]}],
    "outputs": [{"name": "output 0", "storage": 0, "offset": 0, "size": 4, "shape": [16], "strides": [1]}],
    "unwritten": [0],
    "variants": 1,
    "more": False,
}

KERNEL = """
#loc = loc("/tmp/kernel_module.py":8:0)
#loc1 = loc("/tmp/kernel_module.py":10:4)
#loc2 = loc(callsite(#loc1 at #loc))
module {
  tt.func public @k(%out_ptr: !tt.ptr<f32> loc("out_ptr"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc(#loc)
    %c4 = arith.constant 4 : i32 loc(#loc)
    %one = arith.constant dense<1.000000e+00> : tensor<4xf32> loc(#loc)
    %pid = tt.get_program_id x : i32 loc(#loc)
    %first = arith.cmpi eq, %pid, %c0 : i32 loc(#loc)
    cf.cond_br %first, ^bb1, ^bb2 loc(#loc)
  ^bb1:  // pred: ^bb0
    tt.return loc(#loc)
  ^bb2:  // pred: ^bb0
    %p = scf.for %i = %c0 to %n step %c4 iter_args(%q = %out_ptr) -> (!tt.ptr<f32>)  : i32 {
      %here = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32> loc(#loc)
      %s = tt.splat %q : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>> loc(#loc)
      %t = tt.addptr %s, %here : tensor<4x!tt.ptr<f32>>, tensor<4xi32> loc(#loc)
      tt.store %t, %one : tensor<4x!tt.ptr<f32>> loc(#loc2)
      %u = tt.addptr %q, %c4 : !tt.ptr<f32>, i32 loc(#loc)
      scf.yield %u : !tt.ptr<f32> loc(#loc)
    } loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


def test_a_report_of_another_form_is_not_read():
    assert read(REPORT).numbers == [64, 1, 1, 1, 0, 3, 0, 16, 1]
    for wrong in (
        {**REPORT, "bytes": ["64"]},
        {**REPORT, "unwritten": [1]},
        {**REPORT, "launches": [{"kernel": "k", "grid": [1, 1], "arguments": []}]},
        {**REPORT, "bytes": [1 << 70]},
        {},
        None,
    ):
        with pytest.raises(WorkerDied, match="not a valid report"):
            read(wrong)
    with pytest.raises(Untraced, match="without values it fails: RuntimeError: no"):
        read({"error": {"type": "RuntimeError", "message": "no"}})


def test_a_loop_after_an_early_return_is_followed():
    kernel = parse(KERNEL)
    make = Expressions()
    [store] = Walk(kernel, make).run()
    assert (store.kind, store.line, store.shape, len(store.loops)) == ("store", 10, (4,), 1)
    arguments = {0: Target(0, make.constant(0), make.constant(64)), 1: make.constant(14)}
    scene = scene_of(
        make, "k", [store], arguments, [make.constant(2), make.constant(1), make.constant(1)], {}
    )
    assert Prover(scene, time.monotonic() + 60).inside(scene.placed[0]) is True
    short = {**arguments, 0: Target(0, make.constant(0), make.constant(63))}
    scene = scene_of(make, "k", [store], short, scene.grid, {})
    place = Prover(scene, time.monotonic() + 60).inside(scene.placed[0])
    assert isinstance(place, Place)
    assert place.leaves[make.leaf("lane", 0, bits=32)] == 3
    assert place.leaves[make.leaf("program", 0, bits=32)] == 1  # the first one returns


def test_text_that_is_cut_off_or_calls_functions_is_not_followed():
    with pytest.raises(Unparsed, match="ends too early"):
        parse(KERNEL[: KERNEL.index("scf.yield")])
    with pytest.raises(Unparsed, match="not inlined"):
        parse(KERNEL + KERNEL)
    called = KERNEL.replace("tt.store %t, %one", "tt.call @f(%t, %one)")
    with pytest.raises(Unparsed, match=r"what `tt\.call` does to memory is not known"):
        Walk(parse(called), Expressions()).run()


def test_numbers_wrap_as_on_a_gpu_and_divide_towards_zero():
    make = Expressions()
    x = make.leaf("parameter", 0, bits=32)
    square = make.make("mul", x, x, bits=32)
    half = make.make("div", make.make("sub", make.constant(0), x), make.constant(2))
    numbers = Numbers({x: np.array([7, 46341, 65536])}, Ranges({x: (7, 65536)}))
    assert numbers.of(square).tolist() == [49, 46341**2 - 2**32, 0]
    assert numbers.of(half).tolist() == [-3, -23170, -32768]
    assert make.make("mul", make.constant(65536), make.constant(65536), bits=32).number == 0


def test_formulas_hold_at_every_size_that_was_tried():
    make = Expressions()
    n, m = make.leaf("dimension", 0), make.leaf("dimension", 1)
    sizes = [
        {"n": a, "m": b}
        for a, b in [(1, 1), (1, 900), (700, 1), (700, 900), (3, 5), (44, 31), (257, 800), (512, 77)]
    ]
    formulas = Formulas(make, {"n": n, "m": m}, sizes, False)

    def of(number):
        found = formulas.of(tuple(number(**each) for each in sizes))
        if found is None:
            return None
        other = {n: make.constant(123), m: make.constant(457)}
        return make.replace(found, other).number

    assert of(lambda n, m: 4 * n * m + m + 3) == 4 * 123 * 457 + 457 + 3
    assert of(lambda n, m: -(-n * m // 1024)) == -(-123 * 457 // 1024)
    assert of(lambda n, m: n * -(-m // 64)) == 123 * -(-457 // 64)
    assert of(lambda n, m: -(-n // 32) * -(-m // 64)) == -(-123 // 32) * -(-457 // 64)
    assert of(lambda n, m: min(n, 264)) == 123
    assert of(lambda n, m: n * n % 7) is None


def test_digits_are_shown_to_count_each_element_once():
    sizes = {("n",): 1, ("k",): 1}
    n, k = (Polynomial.variable(each) for each in sizes)
    row, lane = ("program", 0), ("lane", 0)

    def digits(row_factor, bound, extent):
        offset = row_factor * Polynomial.variable(row) + Polynomial.variable(lane)
        guard = bound - Polynomial.variable(lane) - Polynomial.constant(1)
        known = {extent - bound: True, bound - Polynomial.constant(1): True}

        def not_negative(each):
            return each.number >= 0 if each.number is not None else known.get(each, False)

        found = Digits(offset, [guard], {row: k, lane: extent}, {row}, not_negative)
        found.change({})
        return found.written()

    thousand = Polynomial.constant(1024)
    whole = digits(n, n, thousand)
    assert whole is not None and whole.count == k * n  # rows of n elements, all of them
    assert digits(n - Polynomial.constant(1), n, thousand) is None  # rows that overlap
    gaps = digits(n * Polynomial.constant(2), n, thousand)
    assert gaps is None or gaps.count is None
