"""Lists all rules in the order in which they are applied. The documentation prints this list."""

from __future__ import annotations

from collections.abc import Collection

from kernelllm_judge.rules.again import Alignment, FreshAddress, Repeat
from kernelllm_judge.rules.effects import BuffersUpdated, InputsKept, StateKept, Surroundings
from kernelllm_judge.rules.gradients import GradientsRule
from kernelllm_judge.rules.memory import Addresses, Aliasing, Guards, Memory, MemoryHeld
from kernelllm_judge.rules.outputs import (
    Attributes,
    FixedInputs,
    IntegerInputs,
    Nonfinite,
    Stress,
    Types,
    Values,
    Weights,
)
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.rules.sizes import Decisions, Operations, Sizes
from kernelllm_judge.rules.source import Compile, Load, RunRule, StaticCheck, Supports
from kernelllm_judge.rules.timing import Clocks, Recheck, RooflineRule, Speed
from kernelllm_judge.rules.work import Decoy, DeviceTime, Launches, TorchShare

RULES: tuple[Rule, ...] = (
    StaticCheck(),
    Supports(),
    Compile(),
    Load(),
    RunRule(),
    Memory(),
    Types(),
    Launches(),
    StateKept(),
    InputsKept(),
    BuffersUpdated(),
    Guards(),
    Values(),
    FixedInputs(),
    IntegerInputs(),
    Weights(),
    Attributes(),
    Sizes(),
    Stress(),
    Nonfinite(),
    GradientsRule(),
    Aliasing(),
    MemoryHeld(),
    TorchShare(),
    FreshAddress(),
    Repeat(),
    Decoy(),
    Alignment(),
    Surroundings(),
    Decisions(),
    Operations(),
    DeviceTime(),
    Recheck(),
    Clocks(),
    RooflineRule(),
    Addresses(),
    Speed(),
)
"""The published rules. Verdicts under other rules do not count; only tests of the judge itself use them."""

NAMES = frozenset(rule.name for rule in RULES)

SWITCHABLE = frozenset(rule.name for rule in RULES if rule.switchable)
"""Names of the rules that can be left out, to show that each catches something that no other rule does."""


def without(names: Collection[str]) -> tuple[Rule, ...]:
    """Returns all rules except those with these names.

    Raises:
        ValueError: a name is not that of a rule, or that rule cannot be left out.
    """
    if unknown := sorted(set(names) - SWITCHABLE):
        raise ValueError(f"not a rule that can be switched off: {', '.join(unknown)}")
    return tuple(rule for rule in RULES if rule.name not in names)
