"""The exam of one target: for each probe the inputs, the shaken module and what the outputs must be."""

from __future__ import annotations

import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pytest_kernelllm.judge import impostors, numerics, reference
from pytest_kernelllm.judge.numerics import Expected
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.probes import Probe
from pytest_kernelllm.judge.stress import stressed
from pytest_kernelllm.judge.structure import flatten
from pytest_kernelllm.records import Case

SMALL = 64 * 1024 * 1024
"""Bytes; questions up to this size are kept for the next candidate."""


class Subject(Protocol):
    """What the judge needs of a live target (``discover.live.LiveTarget``)."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases."""

    def case(self, name: str) -> Case:
        """The case of that name."""

    def build(self, case: Case, device: str = "cpu") -> torch.nn.Module:
        """A fresh module, equal to every other built for this case."""

    def inputs(
        self, case: Case, seed: int, sizes: Mapping[str, int] | None = None, device: str = "cpu"
    ) -> Any:
        """A call's arguments, drawn under ``seed``."""

    def bind(self, call: Any) -> dict[str, Any]:
        """The arguments of a call by parameter name."""


class ExamError(Exception):
    """The original itself cannot be examined at a probe; the text says why."""


@dataclass(frozen=True)
class Question:
    """One probe, ready to be put to a worker."""

    probe: Probe
    module: torch.nn.Module
    arguments: dict[str, Any]
    expected: Expected
    impostor: str | None
    """Name of an impostor that this question would let through; such a question proves nothing."""

    @property
    def bytes(self) -> int:
        """Of inputs, state and outputs together."""
        return _bytes(self.module, self.arguments, self.expected.original)


@dataclass(frozen=True)
class _Modules:
    """A target's module with one set of weights."""

    shaken: torch.nn.Module
    exact: torch.nn.Module
    """In float64."""
    moved: tuple[torch.nn.Module, ...]
    """In float64, weights moved in their last places: up or down at random, and all the other way."""


class Exam:
    """Prepares the questions of one target, and keeps the small ones. Thread-safe."""

    def __init__(self, subject: Subject, device: str, policy: Policy, tolerance: float | None) -> None:
        """``tolerance`` is the marker's override, or None."""
        self.subject = subject
        self.device = device
        self.policy = policy
        self.tolerance = tolerance
        self._keeping = threading.Lock()
        self._preparing = threading.Lock()
        self._compiling = threading.Lock()
        self._kept: OrderedDict[Probe, Question] = OrderedDict()
        self._built: dict[str, torch.nn.Module] = {}
        self._modules: OrderedDict[Any, _Modules] = OrderedDict()
        self._steady: set[str] = set()
        self._compiled: dict[str, Callable[..., Any] | None] = {}

    def question(self, probe: Probe) -> Question:
        """Inputs and expected outputs of a probe.

        Raises:
            ExamError: the original fails at this probe, or gives outputs that cannot be compared.
        """
        kept = self._find(probe)
        if kept is not None:
            return kept
        # One at a time: the user's callables draw from PyTorch's global generator.
        with self._preparing:
            kept = self._find(probe)
            if kept is not None:
                return kept
            question = self._prepare(probe)
        if question.bytes > SMALL:
            if self.device.startswith("cuda"):
                torch.cuda.empty_cache()  # the workers need room too
            return question
        with self._keeping:
            self._kept[probe] = question
            while sum(q.bytes for q in self._kept.values()) > 16 * SMALL:
                self._kept.popitem(last=False)
        return question

    def compiled(self, question: Question) -> Callable[..., Any] | None:
        """``torch.compile`` of the original, compiled once a case; None where it cannot compile the module."""
        case = question.probe.case
        with self._compiling:
            if case not in self._compiled:
                compiled = torch.compile(question.module)
                try:
                    with torch.no_grad():
                        compiled(**question.arguments)
                except Exception:  # a baseline that cannot run is left out of the report, whatever the reason
                    self._compiled[case] = None
                else:
                    self._compiled[case] = compiled
            return self._compiled[case]

    def _find(self, probe: Probe) -> Question | None:
        with self._keeping:
            return self._kept.get(probe)

    def _prepare(self, probe: Probe) -> Question:
        case = self.subject.case(probe.case)
        with _named(probe):
            modules = self._with_weights(case, probe)
            arguments = self._draw(case, probe, probe.seed)
            output = reference.call_original(modules.shaken, arguments)
        _refuse_what_cannot_be_compared(output, probe)
        structure, original = flatten(output)
        self._refuse_randomness(modules.shaken, arguments, original, probe)
        exact, note = self._exact(modules, arguments, original)
        roomy = self._fits(modules.shaken, arguments, original, runs=4)
        if not roomy:
            note += "; for want of memory, small movements of the inputs and half precision were not tried"
        moved = self._moved(modules, arguments, exact, probe.seed) if roomy else []
        note = note.removeprefix("; ")
        free = probe.rule == "stress"
        expected = numerics.expect(structure, original, exact, moved, self.policy, free=free, note=note)
        del moved
        weak = self._weakness(modules.shaken, arguments, expected, probe, roomy)
        return Question(probe, modules.shaken, arguments, expected, weak)

    def _with_weights(self, case: Case, probe: Probe) -> _Modules:
        """The module with the probe's weights, made once for probes in a row that share them."""
        seed = probe.seed if probe.weights is None else probe.weights
        key = (case.name, seed, probe.nudged)
        if key not in self._modules:
            if case.name not in self._built:
                self._built[case.name] = self.subject.build(case, device=self.device)
            module = reference.shaken(self._built[case.name], seed)
            for name in probe.nudged:
                _nudge(module, name)
            moved = (reference.copied(module, change) for change in self._movers(seed))
            made = _Modules(module, reference.copied(module, reference.raised), tuple(moved))
            self._modules[key] = made
            while len(self._modules) > 2:
                self._modules.popitem(last=False)
        return self._modules[key]

    def _movers(self, seed: int) -> Iterator[reference.Change]:
        """By a few float32 eps: one movement, and its opposite."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        for way in (step, -step):
            yield reference.mover(way, seed, torch.device(self.device))

    def _draw(self, case: Case, probe: Probe, seed: int) -> dict[str, Any]:
        call = self.subject.inputs(case, seed, dict(probe.sizes), device=self.device)
        arguments = self.subject.bind(call)
        return stressed(arguments, probe.stress, seed) if probe.stress else arguments

    def _exact(
        self, modules: _Modules, arguments: dict[str, Any], original: list[torch.Tensor]
    ) -> tuple[list[Any] | None, str]:
        """The leaves in float64; or None, and why they cannot be had."""
        why = "float64 takes more memory than there is"
        if self._fits(modules.shaken, arguments, original, runs=2):
            try:
                exact = reference.run_in_float64(modules.exact, arguments)
            except torch.cuda.OutOfMemoryError:
                pass
            except Exception as error:  # e.g. an operation that asks for float32
                why = f"it does not run in float64 ({type(error).__name__})"
            else:
                if [_form(leaf) for leaf in exact] == [_form(leaf) for leaf in original]:
                    return exact, ""
                why = "its outputs have another form in float64"
        return None, f"compared with the original as it is: {why}"

    def _moved(
        self, modules: _Modules, arguments: dict[str, Any], exact: list[Any] | None, seed: int
    ) -> list[list[torch.Tensor]]:
        """The leaves in float64 once more, with all real values moved in their last places, both ways."""
        moved = []
        for module, change in zip(modules.moved, self._movers(seed), strict=True):
            try:
                leaves = reference.run_in_float64(module, arguments, change) if exact else []
            except Exception:  # the user's code may check its inputs
                continue
            if exact and [_form(leaf) for leaf in leaves] == [_form(leaf) for leaf in exact]:
                moved.append(leaves)
        return moved

    def _weakness(
        self,
        module: torch.nn.Module,
        arguments: dict[str, Any],
        expected: Expected,
        probe: Probe,
        roomy: bool,
    ) -> str | None:
        """Name of an impostor that would pass, if there is one."""
        half = other = None
        # Who widens the tolerance says that such errors are welcome.
        if roomy and self.tolerance is None:
            half = reference.run_in_half(module, arguments)
        if roomy:
            with _named(probe):
                drawn = self._draw(self.subject.case(probe.case), probe, probe.seed + 1_000_003)
                other = reference.run_original(module, drawn)[1]
        return impostors.weakness(expected, arguments, other, half, self.policy, self.tolerance)

    def _fits(
        self, module: torch.nn.Module, arguments: dict[str, Any], original: list[torch.Tensor], runs: int
    ) -> bool:
        """Whether there is memory for ``runs`` copies in float64 of all that a call touches."""
        room: float = math.inf
        if self.policy.judge_bytes is not None:
            room = self.policy.judge_bytes
        elif self.device.startswith("cuda"):
            free = torch.cuda.mem_get_info()[0]
            room = free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        # Float64 takes twice the bytes of float32, four times those of bfloat16: the worse is assumed.
        return 4 * runs * _bytes(module, arguments, original) <= room

    def _refuse_randomness(
        self, module: torch.nn.Module, arguments: dict[str, Any], original: list[torch.Tensor], probe: Probe
    ) -> None:
        """Once a case: another run under another seed must give the same outputs, but for the order of sums."""
        if probe.case in self._steady:
            return
        with _named(probe):
            again = flatten(reference.call_original(module, arguments, seed=1))[1]
        same = numerics.expect(None, original, None, [], self.policy)
        for i, leaf in enumerate(again):
            alike = _form(leaf) == _form(original[i])
            tolerance = max(1e-4, 8 * torch.finfo(leaf.dtype).eps) if leaf.is_floating_point() else None
            if not alike or not numerics.compare(leaf, same, i, self.policy, tolerance).passed:
                raise ExamError(
                    f"the original is random: two calls with the same inputs give different outputs, at "
                    f"{probe.describe()}; judge it without dropout, sampling or whatever draws random numbers"
                )
        self._steady.add(probe.case)


@contextmanager
def _named(probe: Probe) -> Iterator[None]:
    """Errors of the user's code, as an ``ExamError`` that names the probe."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # the user's code may raise anything
        text = " ".join(str(error).split())[:300]
        where = probe.describe()
        raise ExamError(f"the original fails at {where}: {type(error).__name__}: {text}") from error


def _refuse_what_cannot_be_compared(output: Any, probe: Probe) -> None:
    """Outputs must be tensors in plain tuples, lists and dicts: a kernel can give nothing else back."""
    where = probe.describe()
    kind = type(output)
    if isinstance(output, tuple | list | Mapping):
        if kind not in (tuple, list, dict):
            raise ExamError(
                f"the original returns a {kind.__name__} at {where}; a kernel returns plain tuples, lists and "
                "dicts, and callers that read fields by name would fail"
            )
        parts = list(output.values()) if isinstance(output, dict) else list(output)
        for part in parts:
            if part is not None:
                _refuse_what_cannot_be_compared(part, probe)
        if not parts or all(part is None for part in parts):
            raise ExamError(f"the original returns an empty {kind.__name__} at {where}")
    elif not isinstance(output, torch.Tensor):
        raise ExamError(f"the original returns something else than tensors at {where}: a {kind.__name__}")
    elif output.is_complex():
        raise ExamError(f"the original returns complex numbers at {where}; they are not judged")


def _form(leaf: Any) -> tuple[Any, ...]:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return (leaf.shape, floating or leaf.dtype) if isinstance(leaf, torch.Tensor) else (type(leaf),)


def _bytes(module: torch.nn.Module, arguments: dict[str, Any], outputs: Any) -> int:
    tensors = [*arguments.values(), *module.parameters(), *module.buffers(), *outputs]
    return sum(t.numel() * t.itemsize for t in tensors if isinstance(t, torch.Tensor))


def _nudge(module: torch.nn.Module, name: str) -> None:
    """Give a float attribute another value, far enough to matter (an epsilon of 1e-6 times two would not)."""
    owner, _, attribute = name.rpartition(".")
    holder = operator.attrgetter(owner)(module) if owner else module
    value = getattr(holder, attribute)
    setattr(holder, attribute, value + 0.05 if abs(value) < 0.01 else value * 1.5)
