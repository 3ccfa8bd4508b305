"""Lists all rules in the order in which they are applied. The documentation prints this list."""

from __future__ import annotations

from collections.abc import Collection

from kernelllm_judge.rules.aliasing import Aliasing
from kernelllm_judge.rules.alignment import Alignment
from kernelllm_judge.rules.attributes import Attributes
from kernelllm_judge.rules.buffers_updated import BuffersUpdated
from kernelllm_judge.rules.clocks import Clocks
from kernelllm_judge.rules.compile import Compile
from kernelllm_judge.rules.decoy import Decoy
from kernelllm_judge.rules.device_time import DeviceTime
from kernelllm_judge.rules.fixed_inputs import FixedInputs
from kernelllm_judge.rules.fresh_address import FreshAddress
from kernelllm_judge.rules.gradients import GradientsRule
from kernelllm_judge.rules.guards import Guards
from kernelllm_judge.rules.inputs_kept import InputsKept
from kernelllm_judge.rules.integer_inputs import IntegerInputs
from kernelllm_judge.rules.launches import Launches
from kernelllm_judge.rules.load import Load
from kernelllm_judge.rules.memory import Memory
from kernelllm_judge.rules.memory_held import MemoryHeld
from kernelllm_judge.rules.near_duplicate import NearDuplicate
from kernelllm_judge.rules.nonfinite import Nonfinite
from kernelllm_judge.rules.recheck import Recheck
from kernelllm_judge.rules.repeat import Repeat
from kernelllm_judge.rules.roofline import RooflineRule
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.rules.run import RunRule
from kernelllm_judge.rules.sizes import Sizes
from kernelllm_judge.rules.speed import Speed
from kernelllm_judge.rules.static_check import StaticCheck
from kernelllm_judge.rules.stress import Stress
from kernelllm_judge.rules.supports import Supports
from kernelllm_judge.rules.surroundings import Surroundings
from kernelllm_judge.rules.torch_share import TorchShare
from kernelllm_judge.rules.types import Types
from kernelllm_judge.rules.values import Values
from kernelllm_judge.rules.weights import Weights

RULES: tuple[Rule, ...] = (
    StaticCheck(),
    Supports(),
    Compile(),
    Load(),
    RunRule(),
    Memory(),
    Types(),
    Launches(),
    InputsKept(),
    BuffersUpdated(),
    Guards(),
    Values(),
    NearDuplicate(),
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
    DeviceTime(),
    Recheck(),
    Clocks(),
    RooflineRule(),
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
