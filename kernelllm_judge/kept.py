"""Keeps the reference outputs of the latest targets for their next candidates."""

from __future__ import annotations

import threading
from collections import OrderedDict

from kernelllm_judge.core.stages import InStage
from kernelllm_judge.leases import Leases
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.outputs import ReferenceOutputs, Subject

KEPT = 6
"""Reference outputs that are kept: of three targets, on two devices each."""


class KeptReferences:
    """The reference outputs of the latest targets. Thread-safe."""

    def __init__(self, policy: Policy, in_stage: InStage, leases: Leases | None) -> None:
        """Keeps none yet.

        Args:
            policy: thresholds.
            in_stage: gives the context for each run of an original.
            leases: of the GPU's memory, if there is a GPU.
        """
        self._policy = policy
        self._in_stage = in_stage
        self._leases = leases
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], ReferenceOutputs] = OrderedDict()

    def of(self, subject: Subject, tolerance: float | None, device: str) -> ReferenceOutputs:
        """Returns the reference outputs of a target on a device, those from before if they are still there."""
        leased = self._leases if device.startswith("cuda") else None
        budget = leased.budget if leased else self._policy.judge_bytes
        with self._lock:
            key = id(subject), device
            if key not in self._kept:
                self._kept[key] = ReferenceOutputs(
                    subject, device, self._policy, tolerance, self._preparing, self._in_stage, budget
                )
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]
