"""The search stage: measures what TorchInductor could write for a target, and completes it with the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Completion, Target
from kernelllm_judge.core.spans import SEARCHED
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.version import render_version
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.generate.search.case_search import form
from pytest_kernelllm.generate.search.search import Found, Program, search
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.store.measurements import MeasurementKey


@dataclass(frozen=True)
class SearchStage:
    """Searches in the judging processes, on all GPUs. Nothing that the store holds is measured again. Thread-safe."""

    context: Context
    processes: TargetProcesses

    def fastest(self, target: Target, written: Sequence[Completion]) -> Completion:
        """Returns the fastest program that the budget finds, as a completion."""
        first = written[0]

        def measure(programs: Sequence[Program]) -> list[Measured]:
            with ThreadPoolExecutor(len(programs)) as threads:
                texts = map(sections.write, programs)
                return list(
                    threads.map(lambda text: self._measured(target, replace(first, text=text)), texts)
                )

        def report(tried: int, spent: float, gain: float) -> None:
            self.context.progress(
                f"{target.name}: searching, {counted(tried, 'program')} measured in {spent:.0f} of"
                f" {self.context.settings.search:.0f} s, {gain:.2f} times as fast"
            )

        with self.context.recorder.span(SEARCHED, target.id):
            found = search(
                [tuple(sections.read(completion.text)) for completion in written],
                measure,
                seconds=self.context.settings.search,
                side_by_side=self.processes.slots,
                report=report,
            )
        return replace(
            first,
            text=sections.write(found.program),
            note=_note(found, written),
            seconds=round(first.seconds + found.seconds, 3),
        )

    def _measured(self, target: Target, completion: Completion) -> Measured:
        key = MeasurementKey(
            target.source_hash,
            self.context.inputs(target),
            self.context.environment,
            render_version(),
            completion.text,
        )
        known = self.context.known.measurements.known(key)
        if known is not None:
            return replace(known, seconds=0.0)  # it takes nothing from the budget
        return self.context.known.measurements.keep(key, self.processes.measure(target, completion))


def _note(found: Found, written: Sequence[Completion]) -> str:
    """Says what the search did: ``Inductor's fusion, its usual block sizes; searched: 1.31 times as fast, 48 programs in 9 s``."""
    forms = [*map(form, found.program)]
    start = next((each for each in written if [*map(form, sections.read(each.text))] == forms), written[0])
    if found.error and found.gain == 1.0:
        return f"{start.note}; not searched: {found.error}"
    tried = counted(found.tried, "program")
    return f"{start.note}; searched: {found.gain:.2f} times as fast, {tried} in {found.seconds:.0f} s"
