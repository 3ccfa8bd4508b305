"""The exam of one target: for each probe the inputs, the shaken module and what the outputs must be."""

from __future__ import annotations

import copy
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pytest_kernelllm.judge import numerics, reference
from pytest_kernelllm.judge.numerics import Expected
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.probes import Probe
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
        tensors = [
            *self.arguments.values(),
            *self.module.parameters(),
            *self.module.buffers(),
            *self.expected.original,
        ]
        return sum(t.numel() * t.itemsize for t in tensors if isinstance(t, torch.Tensor))


class Exam:
    """Prepares the questions of one target, and keeps the small ones. Thread-safe."""

    def __init__(self, subject: Subject, device: str, policy: Policy, tolerance: float | None) -> None:
        """``tolerance`` is the marker's override, or None."""
        self.subject = subject
        self.device = device
        self.policy = policy
        self.tolerance = tolerance
        self._lock = threading.Lock()
        self._kept: OrderedDict[Probe, Question] = OrderedDict()
        self._compiled: dict[str, Callable[..., Any] | None] = {}

    def question(self, probe: Probe) -> Question:
        """Inputs and expected outputs of a probe.

        Raises:
            ExamError: the original fails at this probe, or gives outputs that cannot be compared.
        """
        # One at a time: the user's callables draw from PyTorch's global generator.
        with self._lock:
            if probe not in self._kept:
                question = self._prepare(probe)
                if question.bytes > SMALL:
                    return question
                self._kept[probe] = question
                while sum(q.bytes for q in self._kept.values()) > 16 * SMALL:
                    self._kept.popitem(last=False)
            return self._kept[probe]

    def compiled(self, question: Question) -> Callable[..., Any] | None:
        """``torch.compile`` of the original, compiled once a case; None where it cannot compile the module."""
        case = question.probe.case
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

    def _prepare(self, probe: Probe) -> Question:
        case = self.subject.case(probe.case)
        try:
            module = self.subject.build(case, device=self.device)
            reference.shake(module, probe.seed)
            for name in probe.nudged:
                _nudge(module, name)
            arguments = self._draw(case, probe, probe.seed)
            structure, original = reference.run_original(module, arguments)
            exact = reference.run_in_float64(module, arguments)
            moved = reference.run_in_float64(*_moved(module, arguments, self.policy, probe.seed))
            # Who widens the tolerance says that such errors are welcome.
            half = reference.run_in_half(module, arguments) if self.tolerance is None else None
            other = reference.run_original(module, self._draw(case, probe, probe.seed + 1_000_003))[1]
        except Exception as error:  # the user's code may raise anything
            text = " ".join(str(error).split())[:300]
            raise ExamError(
                f"the original fails at {probe.describe()}: {type(error).__name__}: {text}"
            ) from error
        if not original or not all(isinstance(leaf, torch.Tensor) for leaf in original):
            raise ExamError(f"the original returns something else than tensors at {probe.describe()}")
        conditioning = numerics.conditioning(tuple(exact), tuple(moved))
        expected = Expected(structure, tuple(original), tuple(exact), conditioning)
        return Question(probe, module, arguments, expected, self._weakness(expected, arguments, other, half))

    def _draw(self, case: Case, probe: Probe, seed: int) -> dict[str, Any]:
        call = self.subject.inputs(case, seed, dict(probe.sizes), device=self.device)
        return {k: _scaled(v, probe.scale) for k, v in self.subject.bind(call).items()}

    def _weakness(
        self, expected: Expected, arguments: dict[str, Any], other: list[Any], half: list[Any] | None
    ) -> str | None:
        for name, outputs in numerics.impostors(expected, arguments, other, half):
            differences = (
                numerics.compare(output, expected, i, self.policy, self.tolerance)
                for i, output in enumerate(outputs)
            )
            if all(difference.passed for difference in differences):
                return name
        return None


def _scaled(value: Any, scale: float) -> Any:
    """Scale real-valued tensors; labels, masks, probabilities and counts keep their meaning."""
    if (
        scale == 1.0
        or not isinstance(value, torch.Tensor)
        or not value.is_floating_point()
        or not value.numel()
    ):
        return value
    signed = bool((value < 0).any()) and bool((value > 0).any())
    whole = bool((value == value.round()).all())
    return value * scale if signed and not whole and bool(value.isfinite().all()) else value


def _moved(
    module: torch.nn.Module, arguments: dict[str, Any], policy: Policy, seed: int
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The same question with every real value moved by a few float32 eps, to learn how the output answers."""
    step = policy.conditioning_eps * torch.finfo(torch.float32).eps
    generator = torch.Generator().manual_seed(seed)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2 - 1
        return tensor.double() * (1 + step * signs)

    moved = copy.deepcopy(module).double()
    with torch.no_grad():
        for tensor in [*moved.parameters(), *moved.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(move(tensor))
    return moved, {
        k: move(v) if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for k, v in arguments.items()
    }


def _nudge(module: torch.nn.Module, name: str) -> None:
    """Give a float attribute another value, far enough to matter (an epsilon of 1e-6 times two would not)."""
    owner, _, attribute = name.rpartition(".")
    holder = operator.attrgetter(owner)(module) if owner else module
    value = getattr(holder, attribute)
    setattr(holder, attribute, value + 0.05 if abs(value) < 0.01 else value * 1.5)
