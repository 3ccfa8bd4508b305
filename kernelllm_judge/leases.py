"""Leases GPU memory for verdicts, by what the calls of their targets take, and keeps reference outputs for the next ones."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.stages import InStage
from kernelllm_judge.gpu_lock import UNIT, GpuLedger
from kernelllm_judge.memory import OWN, CallBytes, release_cache
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.outputs import ReferenceOutputs, Subject

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
    worker: int | None = None
    """Bytes that a worker may allocate itself; None: no budget is set."""
    waited: float = 0.0
    """Seconds that the verdict waited for the memory."""


EVERYTHING = Lease(True)
"""The lease where memory is not leased, as without a GPU."""


class Leases:
    """Leases memory of the GPU that this process uses. Thread-safe."""

    def __init__(self, gpu_uuid: str, gpu_memory: int) -> None:
        """Prepares leases; each is taken by ``hold``.

        ``gpu_memory`` is the bytes that all judges of this GPU may take together; 0: nearly all of it.
        """
        total = accelerator.total_bytes()
        self._limited = gpu_memory > 0
        if self._limited:
            accelerator.limit_memory(gpu_memory / total)
        self._ledger = GpuLedger(gpu_uuid, gpu_memory or min(total - OWN, int(SHARE * total)))

    @property
    def budget(self) -> int:
        """Bytes that all leases together may take."""
        return self._ledger.budget

    @contextlib.contextmanager
    def hold(self, call: CallBytes | None, *, alone: bool, only_timed: bool = False) -> Iterator[Lease]:
        """Waits for a lease for a verdict on such calls, and holds it.

        Args:
            call: what a call takes; None: unknown, so everything is leased.
            alone: whether to lease everything.
            only_timed: whether the candidate is not judged.
        """
        needed = self.budget
        if call is not None and not alone:
            needed = call.to_time() if only_timed else call.usual()
        start = time.perf_counter()
        with self._ledger.lease(needed) as leased:
            waited = time.perf_counter() - start
            worker = None
            if self._limited:
                worker = max(UNIT, leased - OWN // 2 - (0 if call is None else call.shared))
            try:
                yield Lease(leased + UNIT > self.budget, worker, waited)
            finally:
                release_cache(0 if self._limited else CACHED)

    def what_would_do(self, call: CallBytes) -> str:
        """Says how much memory would do, if that is more than may be used; else empty."""
        if (needed := call.usual()) <= self.budget:
            return ""
        return f"; about {needed / 2**30:.0f} GiB would do, and {self.budget / 2**30:.0f} GiB may be used"


class Lending:
    """What a target's calls take, and leases for that."""

    def __init__(self, leases: Leases | None, references: ReferenceOutputs) -> None:
        """``leases`` is None where nothing is leased, as without a GPU."""
        self._leases = leases
        self._references = references
        self._call = None if leases is None else self._find_call()

    def _find_call(self) -> CallBytes | None:
        """Returns the bytes of a call of the original; None where it cannot be built."""
        try:
            return self._references.call
        except (Exception, SystemExit):  # which the first probe reports
            return None

    @contextlib.contextmanager
    def lease(self, *, alone: bool, only_timed: bool = False) -> Iterator[Lease]:
        """Waits for a lease and holds it, see ``Leases.hold``. What takes much memory of the GPU is dropped at its end."""
        if self._leases is None:
            yield EVERYTHING
            return
        with self._leases.hold(self._call, alone=alone, only_timed=only_timed) as lease:
            try:
                yield lease
            finally:
                if self._call is not None:
                    self._references.forget()

    def what_would_do(self) -> str:
        """Says how much memory would do, see ``Leases.what_would_do``; empty where that is not known."""
        if self._leases is None or self._call is None:
            return ""
        return self._leases.what_would_do(self._call)


KEPT = 6
"""Reference outputs that are kept: of three targets, on two devices each."""


class KeptReferences:
    """The reference outputs of the latest targets. Thread-safe."""

    def __init__(self, policy: Policy, in_stage: InStage, leases: Leases | None) -> None:
        """Keeps none yet.

        Args:
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
        leased = self._leases if accelerator.is_gpu(device) else None
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
