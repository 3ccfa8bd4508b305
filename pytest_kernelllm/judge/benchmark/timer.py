"""The stopwatch: has the GPU to itself while one case is timed."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Mapping

from pytest_kernelllm.core.records import Timing
from pytest_kernelllm.judge.benchmark.measure import Runner, race
from pytest_kernelllm.judge.benchmark.roofline import Roofline, measure_roofline
from pytest_kernelllm.judge.gpu_lock import hold_gpu
from pytest_kernelllm.judge.handle import WorkerHandle
from pytest_kernelllm.judge.reference.outputs import Exam
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.run.deeper import check_device_time
from pytest_kernelllm.judge.run.run import Proceedings, pose, put
from pytest_kernelllm.judge.shared.buffers import Arena
from pytest_kernelllm.judge.shared.clock import Clock


class Stopwatch:
    """Times cases on one GPU. Thread-safe: whoever times holds the GPU alone."""

    def __init__(self, gpu_uuid: str, seed: int) -> None:
        """``gpu_uuid`` names the GPU's lock; ``seed`` is the judge's secret first one."""
        self._gpu_uuid = gpu_uuid
        self._seed = seed
        self._clock = Clock()
        self._roofline: Roofline | None = None

    def sharing(self) -> contextlib.AbstractContextManager[None]:
        """The GPU, shared with others that check but do not time."""
        return hold_gpu(self._gpu_uuid, alone=False)

    def time(
        self,
        worker: WorkerHandle,
        arena: Arena,
        case: str,
        sizes: Mapping[str, int],
        exam: Exam,
        found: Proceedings,
    ) -> Timing:
        """Time one case at these sizes.

        Raises:
            Decided: an output was wrong, the clocks do not agree, or the worker had no memory (``NoRoom``).
            WorkerDied: the process is gone.
            torch.cuda.OutOfMemoryError: the judge had none.
        """
        probes = [Probe(case, tuple(sizes.items()), self._seed + 100 + i) for i in range(2)]
        dice = random.Random(secrets.randbits(64))
        with self.sharing():
            questions = [exam.question(probe) for probe in probes]
            put(worker, arena, questions[0], exam, found)
            exam.compiled(questions[0])
        with hold_gpu(self._gpu_uuid, alone=True):
            if self._roofline is None:
                self._roofline = measure_roofline(self._clock)
            posed = pose(worker, arena, questions[0])
            check_device_time(worker, posed, questions[0], exam.policy, found)
            runner = Runner(worker, arena, posed, questions, exam, found, dice)
            return race(runner, self._roofline, self._clock)
