"""The parts of a proof: a worker's report, TTIR, numbers of few bits, formulas, signs, and digits."""

import itertools
import random
import time
from functools import partial

import numpy as np
import pytest

from kernelllm_judge.addresses.calls import Followed, Shown, call_of
from kernelllm_judge.addresses.digits import Digits
from kernelllm_judge.addresses.enumerate import Enumerator
from kernelllm_judge.addresses.expressions import Expressions, evaluate
from kernelllm_judge.addresses.formulas import Formulas
from kernelllm_judge.addresses.launches import Form, Untraced, read
from kernelllm_judge.addresses.polynomials import Polynomial, Signs, quotient
from kernelllm_judge.addresses.prove import prove
from kernelllm_judge.addresses.slices import Access, Loop, Walk
from kernelllm_judge.addresses.ttir import Unparsed, parse
from kernelllm_judge.handle import WorkerDied

REPORT = {
    "bytes": [64],
    "launches": [
        {"kernel": "k#0", "grid": [1, 1, 1], "arguments": [{"storage": 0, "offset": 0, "size": 4}, 3, None]}
    ],
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
    assert read(REPORT).numbers == (64, 1, 1, 1, 0, 3, 16, 1, 0)
    pointer = {"storage": 0, "offset": 0, "size": 4}
    for wrong in (
        {**REPORT, "bytes": ["64"]},
        {**REPORT, "bytes": [-1]},
        {**REPORT, "unwritten": [1]},
        {**REPORT, "variants": 0},
        {**REPORT, "launches": [{"kernel": "k", "grid": [1, 1], "arguments": []}]},
        {**REPORT, "launches": [{"kernel": "k", "grid": [1, -1, 1], "arguments": []}]},
        {
            **REPORT,
            "launches": [{"kernel": "k", "grid": [1, 1, 1], "arguments": [{**pointer, "storage": 1}]}],
        },
        {
            **REPORT,
            "launches": [{"kernel": "k", "grid": [1, 1, 1], "arguments": [{**pointer, "offset": -4}]}],
        },
        {**REPORT, "bytes": [1 << 70]},
        {},
        None,
    ):
        with pytest.raises(WorkerDied, match="not a valid report"):
            read(wrong)
    with pytest.raises(Untraced, match="without values it fails: RuntimeError: no"):
        read({"error": {"type": "RuntimeError", "message": "no"}})


def test_a_loop_after_an_early_return_is_followed():
    make = Expressions()
    kernel = Followed.of("k", KERNEL, make)
    [store] = kernel.accesses
    assert (store.kind, store.line, store.shape, len(store.loops)) == ("store", 10, (4,), 1)

    def settled(size):
        arguments = [{"storage": 0, "offset": 0, "size": 4}, 14]
        launch = {"kernel": "k#0", "grid": [2, 1, 1], "arguments": arguments}
        run = read({**REPORT, "launches": [launch], "bytes": [size], "unwritten": []})
        call = call_of(make, run.form, [make.constant(each) for each in run.numbers], {"k#0": kernel})
        shown = prove(call, time.thread_time() + 60)
        return shown, Enumerator(call, shown, time.thread_time() + 60).run()

    proven, computed = settled(64)
    assert "bounds" not in proven.open
    assert not computed.open
    assert not computed.broken
    proven, computed = settled(63)
    assert "bounds" in proven.open
    # The first program returns.
    wrong = "line 10 of `k` writes element 15 of `out_ptr`, which has 15 elements, in program (1, 0, 0)"
    assert computed.broken == wrong


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
    numbers = {x: np.array([7, 46341, 65536])}
    assert evaluate(square, numbers).tolist() == [49, 46341**2 - 2**32, 0]
    assert evaluate(half, numbers).tolist() == [-3, -23170, -32768]
    assert make.make("mul", make.constant(65536), make.constant(65536), bits=32).number == 0


def test_formulas_hold_at_every_size_that_was_tried():
    make = Expressions()
    n, m = make.leaf("dimension", 0), make.leaf("dimension", 1)
    sizes = [
        {"n": a, "m": b}
        for a, b in [(1, 1), (1, 900), (700, 1), (700, 900), (3, 5), (44, 31), (257, 800), (512, 77)]
    ]
    formulas = Formulas(make, {"n": n, "m": m}, sizes)

    def of(number):
        vector = tuple(number(**each) for each in sizes)
        found = formulas.of([vector]).get(vector)
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


def test_signs_are_right_at_every_size():
    n, m = ("dimension", 0), ("dimension", 1)
    ranges = {n: (1, 9), m: (2, 7)}
    a, b = Polynomial.variable(n), Polynomial.variable(m)

    def plus(each, number):
        return each + Polynomial.constant(number)

    def times(each, number):
        return each * Polynomial.constant(number)

    def value(each, n, m):
        def of(variable):
            if variable[0] == "dimension":
                return (n, m)[variable[1]]
            return divmod(*(value(part, n, m) for part in variable[1:]))[variable[0] == "rem"]

        return sum(number * int(np.prod([of(v) for v in key], dtype=int)) for key, number in each.terms)

    quotients = [
        quotient(kind, x, y)
        for kind in ("div", "rem")
        for x, y in ((plus(a, 3), Polynomial.constant(4)), (a * b, b), (a, b))
    ]
    parts = [a, b, a * b, *quotients, *(times(each, 4) for each in quotients)]
    shown = 0
    for x, y in itertools.permutations(parts, 2):
        for number in (-2, -1, 0, 1, 3):
            each = plus(x - y, number)
            if Signs(ranges).not_negative(each):
                shown += 1
                assert min(value(each, n, m) for n in range(1, 10) for m in range(2, 8)) >= 0
    assert shown > 50
    # Blocks that are rounded up hold all elements; one less may not.
    rounded = times(quotient("div", plus(a * b, 3), Polynomial.constant(4)), 4)
    assert Signs(ranges).not_negative(rounded - a * b)
    assert not Signs(ranges).not_negative(plus(rounded - a * b, -1))


def test_digits_are_shown_to_count_each_element_once():
    size, length = ("dimension", 0), ("dimension", 1)
    n, k = (Polynomial.variable(each) for each in (size, length))
    row, lane = ("program", 0), ("lane", 0)

    def digits(row_factor, bound, extent):
        offset = row_factor * Polynomial.variable(row) + Polynomial.variable(lane)
        guard = bound - Polynomial.variable(lane) - Polynomial.constant(1)
        signs = Signs({size: (1, 1024), length: (1, 5000)})
        found = Digits(offset, [guard], {row: k, lane: extent}, {row}, signs)
        found.change()
        return found.written()

    thousand = Polynomial.constant(1024)
    whole = digits(n, n, thousand)
    assert whole is not None
    assert whole.count == k * n  # rows of n elements, all of them
    assert digits(n - Polynomial.constant(1), n, thousand) is None  # rows that overlap
    gaps = digits(n * Polynomial.constant(2), n, thousand)
    assert gaps is None or gaps.count is None


def random_call(rng):
    """Returns expressions, a store, the grid and the size of a tensor over one dimension, as a kernel may have them: right or wrong."""
    make = Expressions()
    n, number = make.leaf("dimension", 0), make.constant
    pid, lane, count = make.program(0), make.lane(0), make.leaf("loop", 1)

    def of(kind, a, b, bits=64):
        return make.make(kind, a, b, bits=bits)

    def blocks(size, block):
        return of("div", of("add", size, number(block - 1)), number(block))

    block, width = rng.choice((2, 4)), rng.choice((3, 4, 8))
    rows = rng.choice(
        (n, blocks(n, block), of("mul", n, number(2)), of("max", of("div", n, number(2)), number(1)))
    )
    stride = rng.choice((n, number(width), number(block), of("add", n, number(1)), of("sub", n, number(1))))
    row = rng.choice(
        (pid, of("div", pid, number(2)), of("rem", pid, n), of("div", pid, n), of("min", pid, n))
    )
    inner = rng.choice((lane, of("rem", lane, n), of("add", lane, of("mul", count, number(block)))))
    more = of("mul", of("rem", pid, n), number(width))
    offset = of("add", of("mul", row, stride), rng.choice((inner, inner, of("add", inner, more))))
    offset = rng.choice((offset, of("sub", offset, number(1)), of("mul", offset, offset, bits=8), offset))
    bound = rng.choice((n, stride, of("mul", n, n), of("mul", n, number(width)), of("add", n, number(1))))
    guards = [of("lt", inner, bound), of("lt", offset, bound), of("lt", pid, n), of("le", number(1), offset)]
    guards = rng.sample(guards, rng.randint(0, 2))
    end = rng.choice((n, number(width), of("mul", n, n, bits=8)))
    start = rng.choice((number(0), pid, of("mul", pid, n, bits=8)))
    at = of("add", start, of("mul", count, number(block)))
    times = of("max", blocks(of("sub", end, start), block), number(0))
    loops = (Loop(count, times, (start, end, number(block))),)
    guards += [of("lt", at, end)]
    if count not in offset.walk() and rng.random() < 0.5:
        loops, guards = (), guards[:-1]
    shape = rng.choice(((block,), (width,), (1,)))
    size = rng.choice((of("mul", rows, stride), of("mul", n, n), of("mul", n, number(width)), bound))
    if rng.random() < 0.5:  # the usual form, which is right with most of these
        size, block, loops = rng.choice((n, of("mul", n, number(width)))), 4, ()
        shape, rows = rng.choice(((4,), (4,), (3,))), blocks(size, rng.choice((4, 4, 4, 8)))
        offset = of("add", of("mul", pid, number(4)), rng.choice((lane, lane, of("rem", lane, n))))
        guards = [of(rng.choice(("lt", "lt", "lt", "le")), offset, rng.choice((size, size, n)))]
    store = Access("store", 0, offset, 1, tuple(guards), shape, loops, 1)
    return make, n, store, rows, size


def test_what_is_proven_of_all_sizes_holds_where_all_programs_are_computed():
    rng, proven = random.Random(0), dict.fromkeys(("bounds", "races", "outputs"), 0)
    argument = {"storage": 0, "offset": 1, "size": 1}
    output = {"name": "it", "storage": 0, "offset": 1, "size": 1, "shape": [0], "strides": [2]}
    launch = {"kernel": "k", "grid": [3, 2, 2], "arguments": [argument]}
    rest = {"unwritten": [0], "variants": 1, "more": False}
    form = Form.from_json({"launches": [launch], "outputs": [output], "bytes": [0], **rest})
    for _ in range(400):
        make, n, store, rows, size = random_call(rng)
        kernels = {"k": Followed("k", [store], ["out"])}
        numbers = [size, make.constant(0), make.constant(1), rows]
        shown = prove(call_of(make, form, numbers, kernels, {n: (1, 13)}), time.thread_time() + 60)
        closed = [aspect for aspect in proven if aspect not in shown.open]
        for aspect in closed:
            proven[aspect] += 1
        for at in range(1, 14) if closed else ():
            by = {n: make.constant(at)}
            fixed = [make.replace(each, by) for each in numbers]
            if fixed[0].number < 0:
                continue
            access = store.changed(partial(make.replace, by=by))
            there = {"k": Followed("k", [access], ["out"])}
            call = call_of(make, form, fixed, there)
            [scene] = call.launches
            by_aspect = {"bounds": scene.accesses, "races": [(scene, 0)], "outputs": call.outputs}
            done = {each for aspect, parts in by_aspect.items() if aspect not in closed for each in parts}
            found = Enumerator(call, Shown(done=done), time.thread_time() + 60).run()
            assert not found.broken, (at, closed, found.broken)
    assert min(proven.values()) > 10, proven
