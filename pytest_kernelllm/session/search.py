"""The search stage: measures what TorchInductor could write for a target, and completes it with the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Completion, Environment, Target
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.version import render_version
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.generate.search.case_search import form
from pytest_kernelllm.generate.search.search import Found, Program, search
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.measurements import MeasurementKey


class SearchStage:
    """Searches in the judging processes, on all GPUs. Nothing that the store holds is measured again. Thread-safe."""

    def __init__(
        self,
        seconds: float,
        store: Store,
        measure: Callable[[Target, Completion], Measured],
        slots: Callable[[], int],
        environment: Callable[[], Environment],
        inputs: Callable[[Target], str],
        progress: Callable[[str], None],
    ) -> None:
        """Measures nothing yet.

        Args:
            seconds: the budget for each target.
            store: where measurements are kept.
            measure: see ``TargetProcesses.measure``.
            slots: how many programs are measured side by side.
            environment: where measurements of the session hold.
            inputs: fingerprint of the inputs that a conftest gives a target.
            progress: called with a few words about what is being done.
        """
        self._seconds = seconds
        self._measure = measure
        self._slots = slots
        self._environment = environment
        self._inputs = inputs
        self._progress = progress
        self._memo = Memo(store.measurements, lasts=lambda measured: measured.seconds > 0)

    def fastest(self, target: Target, written: Sequence[Completion]) -> Completion:
        """Returns the fastest program that the budget finds, as a completion.

        Args:
            target: what the programs are for.
            written: Inductor's variants, the usual one first.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be measured here.
        """
        first = written[0]

        def measure(programs: Sequence[Program]) -> list[Measured]:
            with ThreadPoolExecutor(len(programs)) as threads:
                texts = map(sections.write, programs)
                return list(
                    threads.map(lambda text: self._measured(target, replace(first, text=text)), texts)
                )

        def report(tried: int, spent: float, gain: float) -> None:
            self._progress(
                f"{target.name}: searching, {counted(tried, 'program')} measured in {spent:.0f} of"
                f" {self._seconds:.0f} s, {gain:.2f} times as fast"
            )

        found = search(
            [tuple(sections.read(completion.text)) for completion in written],
            measure,
            seconds=self._seconds,
            side_by_side=self._slots(),
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
            self._inputs(target),
            self._environment(),
            render_version(),
            completion.text,
        )
        known = self._memo.known(key)
        if known is not None:
            return replace(known, seconds=0.0)  # it takes nothing from the budget
        return self._memo.keep(key, self._measure(target, completion))


def _note(found: Found, written: Sequence[Completion]) -> str:
    """Says what the search did: ``Inductor's fusion, its usual block sizes; searched: 1.31 times as fast, 48 programs in 9 s``."""
    forms = [*map(form, found.program)]
    start = next((each for each in written if [*map(form, sections.read(each.text))] == forms), written[0])
    if found.error and found.gain == 1.0:
        return f"{start.note}; not searched: {found.error}"
    tried = counted(found.tried, "program")
    return f"{start.note}; searched: {found.gain:.2f} times as fast, {tried} in {found.seconds:.0f} s"
