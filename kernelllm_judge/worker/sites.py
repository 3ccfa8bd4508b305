"""Records, in Triton's interpreter, how a kernel's decisions fall, as far as they depend on what is loaded or on arguments alone.

A decision is a comparison, a choice of ``tl.where``, of a maximum, a minimum or a clamp, a conjunction, a condition, or a cast
that may lose something. What it depends on is carried from operand to result, with the elements that a mask left out: padding
decides nothing. Decisions of program ids and ranges are addresses, and not recorded.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kernelllm_judge.worker import language
from kernelllm_judge.worker.gpu_semantics import float32

NUMBERS, WHOLE, TRUTHS = 1, 2, 4
"""What a value depends on: loaded floats, loaded integers, loaded booleans…"""
PLACED, GIVEN = 8, 16
"""…program ids and ranges, scalar arguments…"""
DECIDED, AT_LEAST, AT_MOST = 32, 64, 128
"""…and whether it is a count or a place, or has a bound, so that no cast loses anything that was not decided before."""

LOADED = NUMBERS | WHOLE | TRUTHS
BOUNDED = DECIDED | AT_LEAST | AT_MOST

MOST_THRESHOLDS = 8
"""Constants that one place compares with, and that are told apart; a loop may have many."""

LOOKS = 8
"""How often in a call an operand's distance from its threshold is measured, at one site."""

MOST_FORCED = 1 << 18
"""How often a decision is forced in a call."""

MOST_SITES = 512
"""Sites that are recorded."""

COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}

_CASTS = ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_trunc", "int_cast", "fp_to_fp")

_SHAPES: dict[str, Callable[..., Any]] = {
    "create_expand_dims": np.expand_dims,
    "create_broadcast": np.broadcast_to,
    "create_reshape": lambda lanes, shape, *_: lanes.reshape(shape),
    "create_trans": np.transpose,
}
"""How the elements that count are moved with the values."""

_LIBRARY = frozenset({tl.standard.__file__, tl.random.__file__})
"""Files of functions that Triton brings along, whose decisions are not the candidate's."""

Key = tuple[Any, ...]


@dataclass
class Site:
    """One decision: a place in the source, as it is reached through the calls of one kernel."""

    kernel: str
    places: tuple[tuple[CodeType, int], ...]
    """Code and instruction, the innermost first."""
    kind: str
    kinds: int
    threshold: float | None
    yes: bool = False
    no: bool = False
    near: tuple[float, float] | None = None
    """The operands of this call that lie nearest to each other."""
    looks: int = 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to see."""
        return self.yes and (self.no or self.kind == "cast")

    def see(self, yes: Any, no: Any, lanes: np.ndarray | None) -> None:
        """Notes outcomes of elements."""
        if lanes is not None:
            yes, no = yes & lanes, no & lanes
        self.yes = self.yes or bool(yes.any())
        self.no = self.no or bool(no.any())

    def look(self, a: np.ndarray, b: np.ndarray, lanes: np.ndarray | None) -> None:
        """Notes the nearest operands."""
        if self.looks >= LOOKS:
            return
        self.looks += 1
        with np.errstate(all="ignore"):
            a, b = (np.asarray(value, np.float64) for value in (a, b))
            distances = np.abs(a - b)
        if lanes is not None:
            distances = np.where(lanes, distances, np.nan)
        distances = np.where(np.isfinite(distances), distances, np.inf)
        place = int(distances.argmin())
        if distances.flat[place] < (math.inf if self.near is None else abs(self.near[0] - self.near[1])):
            pair = (
                np.broadcast_to(a, distances.shape).flat[place],
                np.broadcast_to(b, distances.shape).flat[place],
            )
            self.near = float(pair[0]), float(pair[1])

    def named(self) -> list[Any]:
        """Returns what identifies the site, as JSON."""
        places = [_position(code, at) for code, at in self.places[:8]]
        return [self.kernel, places, self.kind, self.threshold]

    def report(self) -> dict[str, Any]:
        """Returns the site as JSON."""
        return {
            "site": self.named(),
            "given": not self.kinds & LOADED,
            "whole": self.kinds & LOADED == WHOLE,
            "decided": bool(self.kinds & DECIDED),
            "yes": self.yes,
            "no": self.no,
            "near": self.near,
        }


class Sites:
    """The sites of one candidate."""

    def __init__(self, file: str) -> None:
        """``file`` is the path of the candidate's source."""
        self._file = file
        self._sites: dict[Key, Site] = {}
        self._thresholds: dict[Key, set[Any]] = {}
        self._entry: CodeType | None = None
        self._kernel = ""
        self._forced: Site | None = None
        self._outcome = False
        self.times = 0
        """How often a decision was forced in the last call."""

    def report(self) -> list[dict[str, Any]]:
        """Returns all sites as JSON, those told apart by too many constants as one."""
        found: dict[Key, Site] = {}
        for (place, constant), site in self._sites.items():
            many = len(self._thresholds[place]) > MOST_THRESHOLDS
            first = found.setdefault((place, None if many else constant), site)
            if first is not site:
                first.yes, first.no, first.threshold = first.yes or site.yes, first.no or site.no, None
        return [site.report() for site in found.values()]

    @contextlib.contextmanager
    def recording(self, forced: dict[str, Any] | None = None) -> Iterator[None]:
        """A context in which launches are recorded; or one site, given by what identifies it, has one outcome for all elements."""
        self._forced = None
        if forced:
            named = (site for site in self._sites.values() if site.named() == forced["site"])
            self._forced, self._outcome = next(named, None), forced["outcome"]
        builder, semantic = InterpreterBuilder, type(interpreter.interpreter_semantic)
        reductions = interpreter.ReduceScanOpInterface
        names = [name for name in dir(builder) if name.startswith("create_")]
        patched = [
            *((builder, name, self._wrapped(name, getattr(builder, name))) for name in names),
            (semantic, "broadcast_impl_value", _broadcast(semantic.broadcast_impl_value)),
            (reductions, "apply", _reduced(reductions.apply)),
            (reductions, "to_tensor", _inside(reductions.to_tensor)),
            (interpreter, "_implicit_cvt", _argument(interpreter._implicit_cvt)),
            (interpreter.GridExecutor, "__call__", self._launch(interpreter.GridExecutor.__call__)),
            (tl.tensor, "__bool__", self._condition(tl.tensor.__bool__)),
            (tl.tensor, "T", property(_transposed(tl.tensor.T.fget))),
            (language, "note_numbers", self._numbers),
        ]
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in patched]
        self.times = 0
        for site in () if forced else self._sites.values():
            site.near, site.looks, site.yes, site.no = None, 0, False, False
        TensorHandle.kinds, TensorHandle.lanes = 0, None
        for holder, name, patch in patched:
            setattr(holder, name, patch)
        try:
            yield
        finally:
            for holder, name, original in before:
                setattr(holder, name, original)

    def _launch(self, launch: Any) -> Any:
        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._entry, self._kernel = executor.fn.__code__, executor.fn.__name__
            return launch(executor, *args, **kwargs)

        return call

    def _wrapped(self, name: str, original: Any) -> Any:
        """Returns an operation that carries what its operands depend on to its result, and records what it decides."""
        short = name.removeprefix("create_")
        if short in ("masked_load", "atomic_rmw", "atomic_cas"):
            return _loading(original, masked=short == "masked_load")
        if short in ("get_program_id", "make_range", "get_num_programs"):
            return _placing(original)
        note: Any = None
        if short[:4] in ("icmp", "fcmp"):
            note = self._comparison(COMPARISONS[short[-2:]])
        elif short == "select":
            return self._choice(original)
        elif short[:3] in ("max", "min") and short != "make_range":
            note = self._extreme(short[:3])
        elif short == "clampf":
            note = self._clamp
        elif short in ("and", "or", "xor"):
            note = self._joined(short)
        elif short in _CASTS:
            note = self._cast
        elif short in ("floor", "ceil", "idiv", "lshr", "ashr"):
            note = self._step
        elif short == "extern_elementwise":
            return _carrying(original, None, None, _handles)
        return _carrying(original, note, _SHAPES.get(name))

    def _site(self, kind: str, kinds: int, constant: Any = None) -> Site | None:
        """Returns the site of the operation that runs; None where it is none of the candidate's, or settled."""
        frame: FrameType | None = sys._getframe(3)
        places = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self._file:
                places.append((code, frame.f_lasti))
                if code is self._entry:
                    break
            elif not places and code.co_filename in _LIBRARY:
                return None
            frame = frame.f_back
        if frame is None or not places:
            return None
        place = (self._kernel, kind, *places)
        number = constant
        if type(constant) is TensorHandle:
            number = None if constant.kinds else constant.data.flat[0]
        site = self._sites.get((place, number))
        if site is None:
            thresholds = self._thresholds.setdefault(place, set())
            thresholds.add(number)
            if len(thresholds) > MOST_THRESHOLDS or len(self._sites) > MOST_SITES:
                number = None
                site = self._sites.get((place, None))
        if site is None:
            threshold = number
            if number is not None and type(constant) is TensorHandle:
                threshold = float(float32(constant).data.flat[0])
            finite = threshold if threshold is not None and math.isfinite(threshold) else None
            site = Site(self._kernel, tuple(places), kind, kinds, finite)
            self._sites[place, number] = site
        if self._forced is not None:
            self.times += site is self._forced
            if self.times > MOST_FORCED:
                raise RuntimeError("a loop does not end where its condition is forced")
            return site if site is self._forced else None
        return None if site.settled else site

    def _force(self, result: Any, yes: Any, no: Any) -> None:
        """Gives all elements of a result what they have for the forced outcome."""
        chosen = np.broadcast_to(yes if self._outcome else no, result.data.shape)
        result.data = chosen.astype(result.data.dtype)

    def _comparison(self, sign: str) -> Any:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any, *_: Any) -> int:
            if sign not in ("==", "!=") and (_is_end(a) or _is_end(b)):
                return kinds & PLACED  # nothing lies beyond
            if _relevant(kinds):
                ends = _is_end(a) or _is_end(b)
                kind = f"{sign} itself" if a is b or ends else sign
                site = self._site(kind, kinds, b if a.kinds else a)
                if site is not None and self._forced:
                    self._force(result, True, False)
                elif site is not None:
                    outcome = np.asarray(result.data, bool)
                    x, y = float32(a).data, float32(b).data
                    if a is not b and not ends:
                        lanes = _both(lanes, _finite(x, y))  # what NaN and infinities decide hardly shows
                    site.look(x, y, lanes)
                    site.see(outcome, ~outcome, lanes)
            return kinds | DECIDED

        return note

    def _choice(self, original: Any) -> Any:
        def select(builder: Any, condition: Any, a: Any, b: Any) -> Any:
            result = original(builder, condition, a, b)
            if _relevant(condition.kinds):
                site = self._site_of("where", condition.kinds)
                if site is not None and self._forced:
                    self._force(result, a.data, b.data)
                elif site is not None:
                    outcome = np.asarray(condition.data, bool)
                    site.see(outcome, ~outcome, condition.lanes)
            chosen = a.kinds | b.kinds
            kinds = chosen | condition.kinds & (~BOUNDED if chosen & LOADED else ~0)
            lanes = _both(_both(condition.lanes, a.lanes), b.lanes)
            if not condition.kinds & LOADED and bool(a.kinds & LOADED) != bool(b.kinds & LOADED):
                taken = np.asarray(condition.data, bool)
                lanes = _both(lanes, taken if a.kinds & LOADED else ~taken)
            _mark(result, kinds, lanes)
            return result

        return select

    def _site_of(self, kind: str, kinds: int) -> Site | None:
        return self._site(kind, kinds)

    def _extreme(self, kind: str) -> Any:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any, *_: Any) -> int:
            if _relevant(kinds) and a is not b:
                site = self._site(kind, kinds, b if a.kinds else a)
                if site is not None and self._forced:
                    larger, other = (a, b) if kind == "max" else (b, a)
                    self._force(result, larger.data, other.data)
                elif site is not None:
                    x, y = float32(a).data, float32(b).data
                    lanes = _both(lanes, _ordinary(x, a) & _ordinary(y, b))
                    site.look(x, y, lanes)
                    site.see(x > y, x < y, lanes)
            constant = not (a.kinds and b.kinds)
            return kinds | ((AT_LEAST if kind == "max" else AT_MOST) if constant else 0)

        return note

    def _clamp(self, result: Any, kinds: int, lanes: Any, value: Any, low: Any, high: Any, *_: Any) -> int:
        for name, compare, bound in (("low", operator.lt, low), ("high", operator.gt, high)):
            if not _relevant(kinds):
                break
            site = self._site(name, kinds, bound)
            if site is not None:
                x, y = float32(value).data, float32(bound).data
                some = _both(lanes, _ordinary(y, bound) & _finite(x, y))
                beyond = compare(x, y)
                if self._forced:
                    self._force(result, bound.data, np.where(beyond, value.data, result.data))
                    continue
                site.look(x, y, some)
                site.see(beyond, ~beyond, some)
        return kinds | DECIDED

    def _joined(self, kind: str) -> Any:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any, *_: Any) -> int:
            if result.data.dtype.kind == "b" and _relevant(kinds) and a.kinds and b.kinds:
                site = self._site(kind, kinds)
                if site is not None and self._forced:
                    self._force(result, True, False)
                elif site is not None:
                    outcome = np.asarray(result.data, bool)
                    site.see(outcome, ~outcome, lanes)
            return kinds

        return note

    def _cast(self, result: Any, kinds: int, lanes: Any, source: Any, *_: Any) -> int:
        bounded = kinds & DECIDED or (kinds & AT_LEAST and kinds & AT_MOST)
        if (
            kinds & LOADED
            and not bounded
            and source.data.dtype.kind != "b"
            and _may_lose(source.dtype.scalar, result.dtype.scalar)
        ):
            site = self._site("cast", kinds)
            if site is not None:
                lost, limit = _lost(source, result)
                if math.isfinite(limit):
                    site.look(source.data, np.float64(limit), lanes)
                site.see(lost, ~lost, lanes)
        return kinds

    def _step(self, result: Any, kinds: int, lanes: Any, *_: Any) -> int:
        if kinds & LOADED and (site := self._site("step", kinds)) is not None:
            site.see(result.data != 0, result.data == 0, lanes)
        return kinds

    def _numbers(self, kind: str, left: Any, right: Any, outcome: Any) -> None:
        if type(left) in (bool, int, float) and type(right) in (bool, int, float):
            site = self._site(kind, GIVEN)
            if site is not None:
                site.look(np.float64(left), np.float64(right), None)
                site.see(np.bool_(outcome), np.bool_(not outcome), None)

    def _condition(self, original: Any) -> Any:
        def condition(tensor: Any) -> bool:
            outcome = bool(original(tensor))
            if _relevant(kinds := tensor.handle.kinds):
                site = self._site_of("if", kinds)
                if site is not None and self._forced:
                    return self._outcome
                if site is not None:
                    site.see(np.bool_(outcome), np.bool_(not outcome), None)
            return outcome

        return condition


def _relevant(kinds: int) -> bool:
    return bool(kinds & LOADED) or kinds & (PLACED | GIVEN) == GIVEN


def _mark(result: Any, kinds: int, lanes: Any) -> None:
    for handle in result if type(result) is tuple else (result,):
        if type(handle) is TensorHandle and kinds:
            handle.kinds |= kinds
            if lanes is not None and handle.data.shape == lanes.shape:
                handle.lanes = lanes


def _both(a: Any, b: Any) -> Any:
    """Returns the elements that count in two operands; None: all do."""
    if a is b or b is None:
        return a
    return b if a is None else (a & b if a.shape == b.shape else None)


def _handles(arguments: Any) -> Any:
    """Returns the operands of a function of a library, which stand in a list."""
    return arguments[3]


def _carrying(original: Any, note: Any, shape: Any, flat: Any = tuple) -> Any:
    def create(builder: Any, *arguments: Any, **named: Any) -> Any:
        result = original(builder, *arguments, **named)
        kinds, bounds, lanes = 0, BOUNDED, None
        for each in flat(arguments):
            if type(each) is TensorHandle and (own := each.kinds):
                kinds |= own
                if own & LOADED:
                    bounds &= own
                if each.lanes is not lanes:
                    lanes = _both(lanes, each.lanes)
        if not kinds:
            return result
        kinds = kinds & ~BOUNDED | bounds
        if note is not None:
            kinds = note(result, kinds, lanes, *arguments)
        if shape is not None and lanes is not None:
            lanes = shape(lanes, *arguments[1:])
        _mark(result, kinds, lanes)
        return result

    return create


def _loading(original: Any, *, masked: bool) -> Any:
    def load(builder: Any, *arguments: Any, **named: Any) -> Any:
        result = original(builder, *arguments, **named)
        mask = arguments[1] if masked else None
        lanes = None if mask is None else np.asarray(mask.data if type(mask) is TensorHandle else mask, bool)
        dtype = result.dtype.scalar
        kinds = NUMBERS if dtype.is_floating() else TRUTHS if dtype is tl.int1 else WHOLE
        if not masked and not kinds & NUMBERS:
            kinds = PLACED  # a lock or a ticket, which depends on the order of programs
        _mark(result, kinds, None if lanes is None or lanes.all() else lanes)
        return result

    return load


def _placing(original: Any) -> Any:
    def place(builder: Any, *arguments: Any) -> Any:
        result = original(builder, *arguments)
        result.kinds = PLACED
        return result

    return place


def _broadcast(original: Any) -> Any:
    def broadcast(semantic: Any, left: Any, right: Any) -> Any:
        results = original(semantic, left, right)
        for before, after in zip((left, right), results, strict=True):
            if before is not after:
                after.handle.kinds |= before.handle.kinds
        return results

    return broadcast


def _reduced(original: Any) -> Any:
    def apply(reduction: Any, given: Any) -> Any:
        if not isinstance(given, tuple):
            return original(reduction, given)  # which calls this again
        reduction.kinds = 0
        for each in given:
            reduction.kinds |= each.handle.kinds
        results = original(reduction, given)
        for result in results:
            place = not result.dtype.is_floating() and given[0].dtype.is_floating()
            _mark(
                result.handle,
                reduction.kinds | (DECIDED if place and reduction.kinds else 0),
                given[0].handle.lanes,
            )
        return results

    return apply


def _inside(original: Any) -> Any:
    def to_tensor(reduction: Any, *arguments: Any, **named: Any) -> Any:
        made = original(reduction, *arguments, **named)
        made.handle.kinds |= getattr(reduction, "kinds", 0)
        return made

    return to_tensor


def _transposed(original: Any) -> Any:
    def transpose(tensor: Any) -> Any:
        result = original(tensor)
        lanes = tensor.handle.lanes
        _mark(result.handle, tensor.handle.kinds, None if lanes is None else lanes.T)
        return result

    return transpose


def _argument(original: Any) -> Any:
    def convert(argument: Any) -> Any:
        converted = original(argument)
        if isinstance(argument, int | float):
            converted.handle.kinds = GIVEN
        return converted

    return convert


def _ordinary(values: np.ndarray, handle: Any) -> np.ndarray:
    """Returns which operands of an extreme are no starting value: neither infinite nor the dtype's own limit."""
    if values.dtype.kind != "f":
        limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        if limits is None or handle.kinds & LOADED:
            return np.ones(values.shape, bool)
        return (values != limits.min) & (values != limits.max)
    greatest = np.finfo(np.float16 if handle.dtype.scalar is tl.float16 else np.float32).max
    with np.errstate(invalid="ignore"):
        return np.abs(values) < (greatest if not handle.kinds & LOADED else np.inf)


def _finite(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & np.isfinite(y)


def _is_end(handle: Any) -> bool:
    """Whether an operand is infinite everywhere, and not by what is loaded."""
    data = handle.data
    return (
        data.dtype.kind == "f"
        and not handle.kinds & LOADED
        and bool(np.isinf(data.flat[0]) and np.isinf(data).all())
    )


def _may_lose(source: Any, target: Any) -> bool:
    if source.is_floating():
        return not target.is_floating() or target.primitive_bitwidth < source.primitive_bitwidth
    if target.is_floating():
        return bool(source.primitive_bitwidth > target.fp_mantissa_width + 1)
    return bool(target.primitive_bitwidth < source.primitive_bitwidth and target is not tl.int1)


def _lost(source: Any, result: Any) -> tuple[Any, float]:
    """Returns which elements of a cast lost something, and the magnitude from which on some do."""
    values, target = float32(source).data, result.dtype.scalar
    with np.errstate(all="ignore"):
        if target.is_floating():
            if source.dtype.scalar.is_floating():
                return (float32(result).data != values) & ~np.isnan(values), math.inf
            limit = 2.0 ** (target.fp_mantissa_width + 1)
            return np.abs(values) > limit, limit
        bits = target.primitive_bitwidth
        low, high = (
            (0.0, 2.0**bits) if target.name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
        )
        return (values < low) | (values >= high), high


def _position(code: CodeType, at: int) -> list[int]:
    """Returns line, column and last column of an instruction; they count from where the function's source was taken out."""
    line, last, column, end = list(code.co_positions())[at // 2]
    return [line or 0, column or 0, (end or 0) if line == last else -1]
