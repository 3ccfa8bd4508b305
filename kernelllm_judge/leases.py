"""Leases GPU memory for verdicts, from the ledger that all processes share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernelllm_judge.gpu_ledger import UNIT, GpuLedger
from kernelllm_judge.memory import (
    OWN,
    CallBytes,
    register_host_memory,
    release_cache,
    release_host_cache,
)
from kernelllm_judge.policy import Policy

NEARLY_ALL = 0.8
"""Share of the memory with which a verdict that ran out of it hardly did so for its neighbours."""

SHARE = 0.92
"""Share of the GPU's memory that may be leased at most: processes without a lease hold a little, too. By estimate, eight
judges that wait hold 6 GiB, contexts and caches."""

CACHED = 1 << 28
"""Bytes of GPU memory that a judge may keep for its next candidate."""


@dataclass(frozen=True)
class Lease:
    """GPU memory that a verdict may take."""

    all: bool
    """Whether that is all that this judge may take."""
    nearly_all: bool = True
    """Whether more than that would hardly help."""
    worker: int | None = None
    """Bytes that a worker may allocate itself; None: no budget is set."""
    waited: float = 0.0
    """Seconds until it was free."""


EVERYTHING = Lease(True)
"""Where nothing is leased, as without a GPU."""


class Leases:
    """Leases memory of the GPU that this process uses. Thread-safe."""

    def __init__(self, gpu_uuid: str, gpu_memory: int, policy: Policy) -> None:
        """Leases nothing yet.

        Args:
            gpu_uuid: names the ledger.
            gpu_memory: bytes that all judges of this GPU may take together; 0: nearly all of it.
            policy: how calls are cut.
        """
        total = torch.cuda.get_device_properties(0).total_memory
        self._policy = policy
        self._limited = gpu_memory > 0
        if self._limited:
            torch.cuda.set_per_process_memory_fraction(min(1.0, gpu_memory / total))
        register_host_memory()
        self._ledger = GpuLedger(gpu_uuid, gpu_memory or min(total - OWN, int(SHARE * total)))

    @property
    def budget(self) -> int:
        """Bytes that all leases together may take."""
        return self._ledger.budget

    @contextlib.contextmanager
    def hold(
        self, call: CallBytes | None, *, alone: bool, on_host: bool, only_timed: bool = False
    ) -> Iterator[Lease]:
        """Waits for a lease for a verdict on such calls, and holds it.

        Args:
            call: what a call takes; None: unknown, so everything is leased.
            alone: whether to lease everything.
            on_host: whether the inputs of calls lie in the host's memory.
            only_timed: whether the candidate is not judged.
        """
        needed = self.budget
        if call is not None and not alone:
            usual = call.to_time() if only_timed else call.usual()
            needed = call.least(self._policy, self.budget) if on_host else usual
        start = time.perf_counter()
        with self._ledger.lease(needed) as leased:
            waited = time.perf_counter() - start
            worker = None
            if self._limited:
                worker = max(UNIT, leased - OWN // 2 - (0 if call is None else call.shared))
            try:
                yield Lease(leased + UNIT > self.budget, leased > NEARLY_ALL * self.budget, worker, waited)
            finally:
                release_cache(0 if self._limited else CACHED)
                if on_host:
                    release_host_cache()

    def fits(self, call: CallBytes) -> bool:
        """Whether a verdict with its inputs in the host's memory would have enough."""
        return call.least(self._policy, self.budget) <= self.budget

    def what_would_do(self, call: CallBytes) -> str:
        """Says how much memory would do, if that is more than may be used; else empty."""
        least = call.least(self._policy, self.budget)
        needed = next((n for n in (least, call.usual()) if n > self.budget), 0)
        if not needed:
            return ""
        return f"; about {needed / 2**30:.0f} GiB would do, and {self.budget / 2**30:.0f} GiB may be used"
