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
        """Yields the requested completions, as far as there are so many distinct ones, each when it is written.

        With a search, the first one is the fastest program found, which comes last, and the others are those that it started from.
        """
        for request in requests:
            for completion in self._completions(request.target, request.indices):
                yield request, completion

    def _completions(self, target: Target, indices: Sequence[int]) -> Iterator[Completion]:
        if self._search is None:
            yield from self._processes.write(target, indices)
            return
        texts: list[Completion] = []
        for completion in self._processes.write(target, range(len(VARIANTS))):
            if not completion.text:
                yield replace(completion, index=indices[0])
                return
            texts.append(completion)
            if len(texts) in indices:  # judged while the search goes on
                yield replace(completion, index=len(texts))
        if 0 in indices and texts:
            given = {each.text for each in texts[: max(indices)]}
            best = self._search.fastest(target, texts)
            for completion in (best, *texts[len(given) :]):
                if completion.text not in given:
                    yield replace(completion, index=0)
                    return
