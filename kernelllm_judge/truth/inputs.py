"""Changes a probe's inputs as its kind of stress asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.records import Case
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.findings import OriginalError
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.fingerprint import fingerprint
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import PLANTED, TRANSFORMS
from kernelllm_judge.truth.unsupported import original_errors
from kernelllm_judge.truth.variations import NAMED, OTHERS_FOR_FIXED, Change, allows_nonfinite, direct, vary


class Inputs:
    """Changes the inputs of one target. Not thread-safe."""

    def __init__(self, originals: Originals) -> None:
        """``originals`` draws inputs and tries others."""
        self._originals = originals
        self._fixed: dict[str, frozenset[str]] = {}
        self._others: dict[str, dict[str, Any]] = {}
        """By case: fingerprints of inputs drawn with another seed."""

    def draw_another(self, case: Case, probe: Probe) -> None:
        """Notes what is drawn with another seed, if ``changes`` will ask for it.

        Call it before the probe's inputs are drawn: there may be no memory for both.
        """
        if probe.stress and case.name not in self._fixed:
            drawn = self._originals.subject.inputs(
                case, probe.seed + 1_000_003, dict(probe.sizes), device=self._originals.device
            )
            self._others[case.name] = self._marks(self._originals.subject.bind(drawn))

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
        moved = probe.directed is not None and not probe.directed.weights
        if not probe.stress and not moved:
            return {}
        tried, originals = few(drawn), self._originals
        trial = originals.trial(case, modules.perturbed, tried, lambda _: modules.exact)
        if probe.directed and moved:
            found = direct(
                tried,
                probe.directed,
                probe.seed,
                lambda some, names: trial.accepts_inputs(few(some), names, False),
                lambda change, value: originals.changed(value, change),
            )
            if not found:
                raise Unasked
            return found
        fixed = self._fixed_inputs(case, drawn)
        nonfinite = allows_nonfinite(probe.stress)
        # Where memory is scarce, large inputs are not changed before the change is accepted.
        scarce = originals.on_host
        changes = vary(
            tried if scarce else drawn,
            probe.stress,
            probe.seed,
            fixed,
            lambda some, names: trial.accepts_inputs(some if scarce else few(some), names, nonfinite),
            named_numbers(modules.perturbed, drawn) if probe.stress == NAMED else (),
            {k: originals.span(v) for k, v in drawn.items() if scarce and isinstance(v, torch.Tensor)},
            lambda change, value: originals.changed(value, change),
        )
        constant = sorted(fixed - set(changes)) if probe.stress == OTHERS_FOR_FIXED else []
        if constant:
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
            if probe.stress in TRANSFORMS or probe.stress in PLANTED or not probe.stress:
                with original_errors(probe):
                    drawn = self._originals.draw(
                        self._originals.subject.case(probe.case), probe, probe.seed + 1_000_003
                    )
                drawn = self.changed(drawn, changes)
            try:
                return calls.run_original(module, drawn, self._originals.place)[1]
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:  # what the original accepted for one draw, it may refuse for another
                if probe.stress:
                    return None
                raise OriginalError(f"the original fails at {probe.describe()}: {error}") from error

    def changed(self, drawn: dict[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
        """Returns the inputs with the changes applied to those that they name; those drawn stay as they are."""
        change = self._originals.changed
        return {
            name: change(value, changes[name]) if name in changes else value for name, value in drawn.items()
        }

    def _fixed_inputs(self, case: Case, drawn: dict[str, Any]) -> frozenset[str]:
        """Returns the names of tensors that have the same values at every seed."""
        if case.name not in self._fixed:
            others = self._others[case.name]
            same = {name for name, mark in self._marks(drawn).items() if mark == others.get(name)}
            self._fixed[case.name] = frozenset(same)
        return self._fixed[case.name]

    def _marks(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns what tells tensors with other values apart."""
        return {
            name: (value.shape, value.dtype, fingerprint(value, 0, self._originals.device))
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor) and value.numel()
        }


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
