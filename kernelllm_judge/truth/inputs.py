"""Changes a probe's inputs as its kind of stress asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.core.records import Case
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.findings import OriginalError
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import TRANSFORMS, planted
from kernelllm_judge.truth.unsupported import original_errors
from kernelllm_judge.truth.variations import NAMED, OTHERS_FOR_FIXED, Change, allows_nonfinite, direct, vary


class Inputs:
    """Changes the inputs of one target. Not thread-safe."""

    def __init__(self, originals: Originals) -> None:
        """``originals`` draws inputs and tries others."""
        self._originals = originals
        self._fixed: dict[str, frozenset[str]] = {}

    def changes(
        self,
        case: Case,
        probe: Probe,
        modules: Modules,
        drawn: dict[str, Any],
        few: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> Mapping[str, Change]:
        """Returns the changes of the probe's inputs, by name. ``few`` returns those rows at which they are tried.

        Raises:
            Unasked: the original accepts none.
            ValueError: an input has the same values at every seed, and the original accepts no others.
        """
        directed = probe.directed if probe.directed and not probe.directed.weights else None
        if not probe.stress and not directed:
            return {}
        trial = self._originals.trial(case, modules.perturbed, few(drawn), lambda _: modules.exact)
        nonfinite = allows_nonfinite(probe.stress)

        def accepts(some: dict[str, Any], names: Collection[str]) -> bool:
            return trial.accepts_inputs(few(some), names, nonfinite and not directed)

        if directed:
            found = direct(few(drawn), directed, probe.seed, accepts)
            if not found:
                raise Unasked
            return found
        fixed = self._fixed_inputs(case, probe, drawn) if probe.stress == OTHERS_FOR_FIXED else frozenset()
        numbers = named_numbers(modules.perturbed, drawn) if probe.stress == NAMED else ()
        changes = vary(drawn, probe.stress, probe.seed, fixed, accepts, numbers)
        if constant := sorted(fixed - set(changes)):
            raise ValueError(
                f"its input `{constant[0]}` has the same values at every seed, and it accepts no others: "
                "draw it at random, or make it a plain value"
            )
        if not changes:
            nothing = probe.stress == OTHERS_FOR_FIXED or not any(
                isinstance(v, torch.Tensor) for v in drawn.values()
            )
            raise Unasked("" if nothing else "the original accepts no such inputs")
        return changes

    def other(
        self, module: torch.nn.Module, probe: Probe, changes: Mapping[str, Change], drawn: dict[str, Any]
    ) -> list[torch.Tensor] | None:
        """Returns the outputs for other inputs, which must not pass for this probe's; None: they fail.

        For inputs that were changed in a few places or in their meaning, these are the unchanged ones.
        """
        with self._originals.in_stage(RUNNING):
            if probe.stress in TRANSFORMS or planted(probe.stress) or not probe.stress:
                with original_errors(probe):
                    drawn = self._originals.draw(
                        self._originals.subject.case(probe.case), probe, probe.seed + 1_000_003
                    )
                drawn = self.changed(drawn, changes)
            try:
                return calls.run_original(module, drawn)[1]
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # what the original accepted for one draw, it may refuse for another
                if probe.stress:
                    return None
                raise OriginalError(f"the original fails at {probe.describe()}: {error}") from error

    def changed(self, drawn: dict[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
        """Returns the inputs with the changes applied to those that they name; those drawn stay as they are."""
        return drawn | {name: change(drawn[name]) for name, change in changes.items()}

    def _fixed_inputs(self, case: Case, probe: Probe, drawn: dict[str, Any]) -> frozenset[str]:
        """Returns the names of tensors that have the same values at every seed."""
        if case.name not in self._fixed:
            others = self._originals.draw(case, probe, probe.seed + 1_000_003)
            self._fixed[case.name] = frozenset(
                name
                for name, value in drawn.items()
                if isinstance(value, torch.Tensor) and value.numel() and _equal(value, others.get(name))
            )
        return self._fixed[case.name]


def _equal(value: torch.Tensor, other: Any) -> bool:
    return (
        isinstance(other, torch.Tensor)
        and value.dtype == other.dtype
        and torch.equal(computable(value), computable(other))
    )


MOST = 8
"""Most numbers of each origin."""


def named_numbers(module: nn.Module, arguments: Mapping[str, Any]) -> list[int]:
    """Returns attributes of the module and its parts, constants of its ``forward``, and greatest indices."""
    attributes = [value for part in module.modules() for value in vars(part).values()]
    forward = getattr(type(module), "forward", None)
    constants = _constants(forward.__code__) if isinstance(forward, FunctionType) else ()
    given = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    tensors = (*given, *module.parameters(), *module.buffers())
    last = sorted({size - 1 for tensor in tensors for size in tensor.shape}, reverse=True)
    return list(dict.fromkeys([*_first(attributes), *_first(constants), *_first(last)]))


def _first(values: Iterable[Any]) -> list[int]:
    return list(dict.fromkeys(v for v in values if type(v) is int))[:MOST]


def _constants(code: CodeType) -> Iterator[Any]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif isinstance(constant, tuple):
            yield from constant
        else:
            yield constant
