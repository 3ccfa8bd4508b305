"""The ``inductor`` generator of a session: it writes in the judging processes, and what it wrote may be searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelllm_judge.core.records import Completion, Target
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.inductor.variants import VARIANTS
from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.session.search import SearchStage


class PooledInductor(InductorGenerator):
    """The ``inductor`` generator, at work in the judging processes."""

    concurrent = True

    def __init__(
        self, arch: str, processes: TargetProcesses, search: SearchStage | None = None, searched_for: str = ""
    ) -> None:
        """Prepares; the first request starts writing."""
        super().__init__(arch)
        self._processes = processes
        self._search = search
        self._searched_for = searched_for

    def identity(self) -> str:
        """See ``InductorGenerator.identity``; what a search finds depends on the GPU and the budget as well."""
        return f"{super().identity()} search={self._searched_for}" if self._search else super().identity()

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields the requested completions, as far as there are so many distinct ones.

        With a search, the first one is the fastest program found, and the others are those that it started from.
        """
        for request in requests:
            for completion in self._completions(request.target, request.indices):
                yield request, completion

    def _completions(self, target: Target, indices: Sequence[int]) -> list[Completion]:
        if self._search is None:
            return self._processes.write(target, indices)
        written = self._processes.write(target, range(len(VARIANTS)))
        texts = [each for each in written if each.text]
        if not texts:
            return [replace(each, index=indices[0]) for each in written[:1]]
        best = self._search.fastest(target, texts)
        ordered = [best, *(each for each in texts if each.text != best.text)]
        return [replace(each, index=n) for n, each in enumerate(ordered) if n in indices]
