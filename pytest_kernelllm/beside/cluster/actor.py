"""One slot on a node of a Ray cluster: an actor that keeps a judging process there, like those of the local pool.

The judge runs in a process of its own, not in Ray's worker, so a crash costs a job and not the actor. Imports neither Ray
nor torch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelllm_judge.environment import find_environment, find_gpu
from pytest_kernelllm.beside.cluster.versions import versions
from pytest_kernelllm.pool.hosts import Hosts
from pytest_kernelllm.pool.jobs import CannotStart, PoolJob, ProcessLost
from pytest_kernelllm.pool.messages import Handshake
from pytest_kernelllm.pool.pool_process import Reply, Slot, StageOverdue
from pytest_kernelllm.pool.process_slot import ProcessSlot


class JudgingActor:
    """Does one job at a time on the CPUs and the GPU that Ray gave to its actor."""

    def __init__(self, module: str, handshake: dict[str, Any], stage_seconds: float, threads: int) -> None:
        """Makes the actor; its judging process starts with the first job."""
        given = Handshake.from_json(handshake)
        self._environment = find_environment(given.environment.device, given.environment.arch)
        gpu = find_gpu() if given.environment.on_gpu else None
        start = replace(given, environment=self._environment, gpu_uuid=gpu.uuid if gpu else "")
        slot = Slot.of(start.to_json(), min(threads, len(os.sched_getaffinity(0))), start.gpu_uuid)
        self._hosts = Hosts((module,))
        self._slot = ProcessSlot(module, slot, self._hosts, stage_seconds)
        self._folder = tempfile.TemporaryDirectory(prefix="kernelllm-ray-")

    def versions(self) -> dict[str, str]:
        """Returns this node's ``versions``."""
        return versions(self._environment)

    def do(self, job: PoolJob, files: Mapping[Path, bytes]) -> Reply | Exception:
        """Does one job; returns its reply, or what ``ProcessSlot.do`` raises.

        Args:
            job: its ``root`` is the driver's, in whose place this node has the files.
        """
        for path, content in files.items():
            file = self._here(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        request = {
            kind: {**fields, "root": str(self._here(fields["root"]))} for kind, fields in job.request.items()
        }
        try:
            return self._slot.do(replace(job, request=request))
        except (ProcessLost, StageOverdue, CannotStart) as failure:
            return failure

    def close(self) -> None:
        """Ends the judging process, also while a job runs in another thread, and removes the files."""
        self._slot.close()
        self._hosts.close()
        self._folder.cleanup()

    def _here(self, path: Path | str) -> Path:
        """Where a file of the driver lies on this node: the driver's tree, below a folder of the actor's own."""
        return Path(self._folder.name, os.path.normpath(path).lstrip("/"))
