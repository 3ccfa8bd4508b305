"""A writing process: writes and renders candidates with the CPU alone, while others are judged.

Run as ``python -m pytest_kernelllm.pool.writing_process FD``. What crashes in a compiler ends this process, and no judge.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from kernelllm_judge.constructors import Constructors
from kernelllm_judge.isolation.isolation import probe_isolation
from pytest_kernelllm.pool.messages import Handshake, PrepareRequest, request_of
from pytest_kernelllm.pool.pool_process import UNFIT
from pytest_kernelllm.pool.serving import StageReports, serve
from pytest_kernelllm.pool.targets import TargetLoader


class TargetWriter(TargetLoader):
    """Loads targets, writes and renders candidates for them."""

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers a ``PrepareRequest``, or with ``UNFIT`` where another process must."""
        request = request_of(message)
        if not isinstance(request, PrepareRequest) or not self.fit_for(request):
            return {UNFIT: True}
        return self.prepared(request).to_json()


@contextlib.contextmanager
def _writing(start: Handshake, reports: StageReports) -> Iterator[TargetWriter]:
    with Constructors(probe_isolation("cpu", start.isolation)) as constructors:
        yield TargetWriter(start.environment, constructors, reports.in_stage)


if __name__ == "__main__":
    serve(sys.argv, _writing)
