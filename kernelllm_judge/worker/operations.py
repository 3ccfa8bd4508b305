"""Records, in Triton's interpreter, the operations on numbers in a kernel, and gives one of them another result.

Those of which only comparisons are made are left out: how their outcomes fall is recorded by ``sites``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle

from kernelllm_judge.worker.dependence import LOADED, Note, relevant
from kernelllm_judge.worker.intervals import chosen
from kernelllm_judge.worker.operands import are_truths, flattened, has_mutants, mutated, varying
from kernelllm_judge.worker.sites import Sites, position

MOVING = (
    "load",
    "masked_load",
    "tensor_pointer_load",
    "descriptor_load",
    "gather",
    "select",
    "join",
    "cat",
    "split",
)
SHAPING = ("splat", "unsplat", "expand_dims", "broadcast", "reshape", "trans")
ROUNDING = ("fp_ext", "fp_trunc", "fp_to_fp", "bitcast")

UNCHANGED = frozenset({*MOVING, *SHAPING, *ROUNDING})
"""Operations whose results are values that there were before."""


@dataclass(eq=False)
class Operation:
    """One operation: a place in the source, as it is reached through the calls of one kernel."""

    kernel: str
    places: tuple[tuple[CodeType, int], ...]
    """Code and instruction, the innermost first."""
    name: str
    added: bool = False
    """Whether it adds a constant to what is loaded."""
    bounding: bool = False
    """Whether it keeps an integer that was loaded below or above a constant."""
    uses: set[Operation | None] = field(default_factory=set)
    """The operations that its result goes into; None stands for what is none, such as a store."""

    def named(self) -> list[Any]:
        """Returns what identifies the operation, as JSON."""
        return [self.kernel, [position(code, at) for code, at in self.places[:8]], self.name]


COMPARED = Operation("", (), "comparison")
"""Stands for all comparisons."""


_WRAPS = Operation("", (), "an index below 0")
"""Makes the condition under which an index counts from the end, where none does: an original that accepts no such index is not
asked for it, and one that does is."""


def _is_loaded(value: Any) -> bool:
    """Whether an integer was loaded, and at most kept within constant ends since: not computed from others."""
    kept = all(each.bounding for each in value.makers)
    return bool(value.kinds & LOADED) and kept and bool(value.dtype.scalar.is_int())


def _asks_below_zero(index: Any, end: Any) -> bool:
    """Whether a comparison asks if a loaded integer is below 0."""
    return _is_loaded(index) and not np.any(end.data)


class Operations(Sites):
    """The sites and the operations of one candidate."""

    def __init__(self, file: str) -> None:
        """``file`` is the path of the candidate's source."""
        super().__init__(file)
        self._operations: dict[tuple[Any, ...], Operation] = {}
        self._tracked = False
        self._mutant: Operation | None = None
        self._scaled = True
        self.mutated = False
        """Whether the mutant ran in the last call."""

    def found(self) -> list[dict[str, Any]]:
        """Returns the operations as JSON, but for those whose results nothing uses, in the end, or comparisons only."""
        every = set(self._operations.values())
        deciding, before = every, -1
        while len(deciding) != before:
            before = len(deciding)
            deciding = {each for each in deciding if each.uses <= {COMPARED, *deciding}}
        return [{"operation": each.named(), "added": each.added} for each in every - deciding]

    @contextlib.contextmanager
    def tracking(self, mutant: dict[str, Any]) -> Iterator[None]:
        """A context in which operations are recorded, or the one that ``mutant`` names has another result."""
        self._mutant, self.mutated = None, False
        if mutant:
            named = (each for each in self._operations.values() if each.named() == mutant["operation"])
            self._mutant, self._scaled = next(named, None), mutant["scaled"]
        self._tracked = True
        try:
            with self.recording():
                yield
        finally:
            self._tracked = False

    def _note_of(self, name: str) -> Note | None:
        return self._operation(name) if self._tracked else super()._note_of(name)

    def _operation(self, name: str) -> Note:
        def note(result: Any, kinds: int, lanes: Any, *operands: Any) -> tuple[int, Any]:
            handles = [each for each in flattened(operands) if type(each) is TensorHandle]
            if name == "select":
                taken = operands[2:] if _WRAPS in operands[0].makers else (operands[0], *chosen(*operands))
                handles = [each for each in taken if type(each) is TensorHandle]
            makers = frozenset().union(*(each.makers for each in handles))
            if name in UNCHANGED:
                for each in flattened((result,)):
                    each.makers |= makers
                    each.truths = bool(handles) and all(handle.truths for handle in handles)
                return kinds, lanes
            made = None
            if are_truths(name, result, handles):
                result.truths = True
            counts = relevant(kinds) and has_mutants(result, kinds)
            if counts and (made := self._made(name)):
                result.makers = frozenset({made})
                rest = varying(operands) if name in ("fadd", "fsub") else None
                made.added = made.added or rest is not None
                loaded = [each for each in handles if each.kinds & LOADED]
                made.bounding = name in ("minsi", "maxsi") and len(loaded) == 1 and _is_loaded(loaded[0])
                if made is self._mutant:
                    self._mutate(result, rest)
            if name == "icmpSLT" and _asks_below_zero(*operands) and not result.data.any():
                result.makers = frozenset({_WRAPS})
            for maker in makers if self._mutant is None else ():
                maker.uses.add(COMPARED if name[:4] in ("icmp", "fcmp") else made)
            return kinds, lanes

        return note

    def _made(self, name: str) -> Operation | None:
        places = self._places(library=True)
        if not places:
            return None
        return self._operations.setdefault(
            (self._kernel, name, *places), Operation(self._kernel, places, name)
        )

    def _mutate(self, result: Any, rest: Any) -> None:
        self.mutated = True
        if self._scaled:
            result.data = mutated(result)
        elif rest is not None:
            result.data = np.broadcast_to(rest.data, result.data.shape).astype(result.data.dtype)
