"""Records, in Triton's interpreter, how a kernel's decisions fall, as far as they depend on what is loaded or on arguments alone.

A decision is a comparison, a choice of ``tl.where``, of a maximum, a minimum or a clamp, a conjunction, a condition, or a cast
that may lose something. Decisions of program ids and ranges are addresses, and not recorded.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from kernelllm_judge.worker import language
from kernelllm_judge.worker.dependence import (
    DECIDED,
    GIVEN,
    LOADED,
    NUMBERS,
    PLACED,
    WHOLE,
    Note,
    both,
    patches,
    relevant,
)
from kernelllm_judge.worker.gpu_semantics import float32
from kernelllm_judge.worker.intervals import COMPARISONS, interval, settled
from kernelllm_judge.worker.operands import finite, is_end, lost, may_lose, ordinary

MOST_THRESHOLDS = 8
"""Constants that one place compares with, and that are told apart; a loop may have many."""

LOOKS = 8
"""How often in a call an operand's distance from its threshold is measured, at one site."""

MOST_FORCED = 1 << 18
"""How often a decision is forced in a call."""

MOST_SITES = 512
"""Sites that are recorded."""

_LIBRARY = frozenset({tl.standard.__file__, tl.random.__file__})
"""Files of functions that Triton brings along, whose decisions are not the candidate's."""


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

    def see(self, outcomes: Any, lanes: np.ndarray | None) -> None:
        """Notes outcomes of elements that count."""
        yes = np.asarray(outcomes, bool)
        no = ~yes
        if lanes is not None:
            yes, no = yes & lanes, no & lanes
        self.yes = self.yes or bool(yes.any())
        self.no = self.no or bool(no.any())

    def look(self, a: Any, b: Any, lanes: np.ndarray | None) -> None:
        """Notes the nearest operands."""
        if self.looks >= LOOKS:
            return
        first = slice(LOOKS - self.looks)  # of the programs, as if one came after the other
        self.looks += len(interpreter.interpreter_builder.programs)
        counting = True if lanes is None else lanes
        arrays = np.broadcast_arrays(np.asarray(a, np.float64), b, counting)
        x, y, counting = (np.atleast_1d(each)[first] for each in arrays)
        with np.errstate(all="ignore"):
            distances = np.abs(x - y)
        distances = np.where(np.isfinite(distances) & counting, distances, np.inf)
        place = int(distances.argmin())
        if distances.flat[place] < (math.inf if self.near is None else abs(self.near[0] - self.near[1])):
            self.near = float(x.flat[place]), float(y.flat[place])

    def named(self) -> list[Any]:
        """Returns what identifies the site, as JSON."""
        places = [position(code, at) for code, at in self.places[:8]]
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
        self._sites: dict[tuple[Any, ...], Site] = {}
        self._thresholds: dict[tuple[Any, ...], set[Any]] = {}
        self._entry: CodeType | None = None
        self._kernel = ""
        self._forced: Site | None = None
        self._outcome = False
        self.times = 0
        """How often a decision was forced in the last call."""

    def report(self) -> list[dict[str, Any]]:
        """Returns all decisions as JSON, those told apart by too many constants as one."""
        found: dict[tuple[Any, ...], Site] = {}
        for (place, constant), site in self._sites.items():
            many = len(self._thresholds[place]) > MOST_THRESHOLDS
            first = found.setdefault((place, None if many else constant), site)
            if first is not site:
                first.yes, first.no, first.threshold = first.yes or site.yes, first.no or site.no, None
        return [site.report() for site in found.values()]

    @contextlib.contextmanager
    def recording(self, forced: dict[str, Any] | None = None) -> Iterator[None]:
        """A context in which launches are recorded; or one site, given by what identifies it, has one outcome for all elements."""
        self._forced, self.times = None, 0
        if forced:
            named = (site for site in self._sites.values() if site.named() == forced["site"])
            self._forced, self._outcome = next(named, None), forced["outcome"]
        for site in () if forced else self._sites.values():
            site.near, site.looks, site.yes, site.no = None, 0, False, False
        patched = [
            *patches(self._note_of),
            (interpreter.GridExecutor, "__call__", self._launch(interpreter.GridExecutor.__call__)),
            (tl.tensor, "__bool__", self._condition(tl.tensor.__bool__)),
            (language, "note_numbers", self._numbers),
        ]
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in patched]
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

    def _note_of(self, name: str) -> Note | None:
        """Returns what is called after an operation, by its name: what it decides is noted."""
        notes: dict[str, Note] = {
            "select": self._choice,
            "clampf": self._clamp,
            **dict.fromkeys(("fabs", "iabs"), self._unary("sign")),
            **{name: self._joined(name) for name in ("and", "or", "xor")},
            **dict.fromkeys(("floor", "ceil", "idiv", "lshr", "ashr"), self._unary("step")),
            **dict.fromkeys(("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui"), self._cast),
            **dict.fromkeys(("fp_trunc", "int_cast", "fp_to_fp"), self._cast),
        }
        if name[:4] in ("icmp", "fcmp"):
            notes[name] = self._comparison(COMPARISONS[name[-2:]])
        elif name[:3] in ("max", "min"):
            notes[name] = self._extreme(name[:3])
        return notes.get(name)

    def _places(self, *, library: bool = False) -> tuple[tuple[CodeType, int], ...]:
        """Returns where the operation that runs stands, the innermost place first; nothing where that is not the candidate's.

        ``library`` also gives places from which functions of Triton's library were called.
        """
        frame: FrameType | None = sys._getframe(1)
        places: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self._file:
                places.append((code, frame.f_lasti))
                if code is self._entry:
                    return tuple(places)
            elif not places and not library and code.co_filename in _LIBRARY:
                return ()
            frame = frame.f_back
        return ()

    def _site(self, kind: str, kinds: int, constant: Any = None) -> Site | None:
        """Returns the site of the operation that runs; None where it is none of the candidate's, or settled."""
        if not (places := self._places()):
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
            bound = threshold if threshold is not None and math.isfinite(threshold) else None
            site = Site(self._kernel, places, kind, kinds, bound)
            self._sites[place, number] = site
        if self._forced is not None:
            self.times += site is self._forced
            if self.times > MOST_FORCED:
                raise RuntimeError("a loop does not end where its condition is forced")
            return site if site is self._forced else None
        return None if site.yes and (site.no or kind == "cast") else site

    def _force(self, site: Site, result: Any, yes: Any, no: Any) -> bool:
        """Gives all elements of a result what they have for the forced outcome; returns whether the site is forced."""
        if site is not self._forced:
            return False
        chosen = np.broadcast_to(yes if self._outcome else no, result.data.shape)
        result.data = chosen.astype(result.data.dtype)
        return True

    def _comparison(self, sign: str) -> Note:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any) -> tuple[int, Any]:
            # What is made of floats alone was compared before: truth values, counts of them, places of extremes.
            if kinds & LOADED not in (0, NUMBERS) and a.data.dtype.kind in "iu":
                kinds |= DECIDED
            ends = is_end(a) or is_end(b)
            if ends and sign not in ("==", "!="):
                return kinds & PLACED, lanes  # nothing lies beyond
            if settled(sign, a, b):
                return kinds & PLACED, lanes
            if relevant(kinds):
                kind = f"{sign} itself" if a is b or ends else sign
                site = self._site(kind, kinds, b if a.kinds else a)
                if site is not None and not self._force(site, result, True, False):
                    x, y = float32(a).data, float32(b).data
                    if a is not b and not ends:
                        lanes = both(lanes, finite(x, y))  # what NaN and infinities decide hardly shows
                    site.look(x, y, lanes)
                    site.see(result.data, lanes)
            return kinds & PLACED if a is b else kinds, lanes  # NaN is asked by a rule of its own

        return note

    def _choice(self, result: Any, kinds: int, lanes: Any, condition: Any, a: Any, b: Any) -> tuple[int, Any]:
        if relevant(condition.kinds):
            site = self._site("where", condition.kinds)
            if site is not None and not self._force(site, result, a.data, b.data):
                site.see(condition.data, condition.lanes)
        if not condition.kinds & LOADED and bool(a.kinds & LOADED) != bool(b.kinds & LOADED):
            taken = np.asarray(condition.data, bool)
            lanes = both(lanes, taken if a.kinds & LOADED else ~taken)
        return kinds, lanes

    def _extreme(self, kind: str) -> Note:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any) -> tuple[int, Any]:
            if relevant(kinds) and a is not b and not settled(">" if kind == "max" else "<", a, b):
                site = self._site(kind, kinds, b if a.kinds else a)
                larger, other = (a, b) if kind == "max" else (b, a)
                if site is not None and not self._force(site, result, larger.data, other.data):
                    x, y = float32(a).data, float32(b).data
                    some = both(lanes, ordinary(x, a) & ordinary(y, b) & (x != y))
                    site.look(x, y, some)
                    site.see(x > y, some)
            return kinds, lanes

        return note

    def _clamp(
        self, result: Any, kinds: int, lanes: Any, value: Any, low: Any, high: Any, *_: Any
    ) -> tuple[int, Any]:
        x = float32(value).data
        for name, bound in (("low", low), ("high", high)) if relevant(kinds) else ():
            y = float32(bound).data
            beyond = x < y if name == "low" else x > y
            if settled("<" if name == "low" else ">", value, bound):
                continue
            site = self._site(name, kinds, bound)
            unbound = np.where(beyond, value.data, result.data)
            if site is not None and not self._force(site, result, bound.data, unbound):
                some = both(lanes, ordinary(y, bound) & finite(x, y))
                site.look(x, y, some)
                site.see(beyond, some)
        return kinds, lanes

    def _joined(self, kind: str) -> Note:
        def note(result: Any, kinds: int, lanes: Any, a: Any, b: Any) -> tuple[int, Any]:
            if result.data.dtype.kind == "b" and relevant(kinds) and a.kinds and b.kinds:
                site = self._site(kind, kinds)
                if site is not None and not self._force(site, result, True, False):
                    site.see(result.data, lanes)
            return kinds, lanes

        return note

    def _cast(self, result: Any, kinds: int, lanes: Any, source: Any, *_: Any) -> tuple[int, Any]:
        if kinds & LOADED and may_lose(source, result.dtype.scalar):
            site = self._site("cast", kinds)
            if site is not None:
                losing, limit = lost(source, result)
                if math.isfinite(limit):
                    site.look(source.data, np.float64(limit), lanes)
                site.see(losing, lanes)
        return kinds, lanes

    def _unary(self, kind: str) -> Note:
        def note(result: Any, kinds: int, lanes: Any, value: Any, *_: Any) -> tuple[int, Any]:
            settled_sign = kind == "sign" and interval(value)[0] >= 0
            if kinds & LOADED and not settled_sign and (site := self._site(kind, kinds)) is not None:
                x = float32(value).data
                site.look(x, np.float64(0), lanes)
                site.see(x < 0 if kind == "sign" else result.data != 0, lanes)
            return kinds, lanes

        return note

    def _numbers(self, kind: str, left: Any, right: Any, outcome: Any) -> None:
        if type(left) in (bool, int, float) and type(right) in (bool, int, float):
            site = self._site(kind, GIVEN)
            if site is not None:
                site.look(np.float64(left), np.float64(right), None)
                site.see(outcome, None)

    def _condition(self, original: Any) -> Any:
        def condition(tensor: Any) -> bool:
            outcome = bool(original(tensor))
            if relevant(kinds := tensor.handle.kinds) and (site := self._site("if", kinds)) is not None:
                if site is self._forced:
                    return self._outcome
                site.see(outcome, None)
            return outcome

        return condition


@cache
def _positions(code: CodeType) -> list[tuple[int | None, ...]]:
    return list(code.co_positions())


def position(code: CodeType, at: int) -> list[int]:
    """Returns line, column and last column of an instruction; they count from where the function's source was taken out."""
    line, last, column, end = _positions(code)[at // 2]
    return [line or 0, column or 0, (end or 0) if line == last else -1]
