"""Lists all rules in the order in which they are applied. The documentation prints this list."""

from __future__ import annotations

from collections.abc import Collection

from pytest_kernelllm.judge.rules.aliasing import Aliasing
from pytest_kernelllm.judge.rules.alignment import Alignment
from pytest_kernelllm.judge.rules.attributes import Attributes
from pytest_kernelllm.judge.rules.buffers_updated import BuffersUpdated
from pytest_kernelllm.judge.rules.clocks import Clocks
from pytest_kernelllm.judge.rules.compile import Compile
from pytest_kernelllm.judge.rules.decoy import Decoy
from pytest_kernelllm.judge.rules.device_time import DeviceTime
from pytest_kernelllm.judge.rules.fixed_inputs import FixedInputs
from pytest_kernelllm.judge.rules.fresh_address import FreshAddress
from pytest_kernelllm.judge.rules.gradients import GradientsRule
from pytest_kernelllm.judge.rules.guards import Guards
from pytest_kernelllm.judge.rules.inputs_kept import InputsKept
from pytest_kernelllm.judge.rules.integer_inputs import IntegerInputs
from pytest_kernelllm.judge.rules.launches import Launches
from pytest_kernelllm.judge.rules.load import Load
from pytest_kernelllm.judge.rules.memory import Memory
from pytest_kernelllm.judge.rules.memory_held import MemoryHeld
from pytest_kernelllm.judge.rules.near_duplicate import NearDuplicate
from pytest_kernelllm.judge.rules.nonfinite import Nonfinite
from pytest_kernelllm.judge.rules.recheck import Recheck
from pytest_kernelllm.judge.rules.repeat import Repeat
from pytest_kernelllm.judge.rules.roofline import RooflineRule
from pytest_kernelllm.judge.rules.rule import Rule
from pytest_kernelllm.judge.rules.run import RunRule
from pytest_kernelllm.judge.rules.sizes import Sizes
from pytest_kernelllm.judge.rules.speed import Speed
from pytest_kernelllm.judge.rules.static_check import StaticCheck
from pytest_kernelllm.judge.rules.stress import Stress
from pytest_kernelllm.judge.rules.supports import Supports
from pytest_kernelllm.judge.rules.surroundings import Surroundings
from pytest_kernelllm.judge.rules.torch_share import TorchShare
from pytest_kernelllm.judge.rules.types import Types
from pytest_kernelllm.judge.rules.values import Values
from pytest_kernelllm.judge.rules.weights import Weights

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
