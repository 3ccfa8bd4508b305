"""One run: targets in, outcomes out. Completions are written, rendered, and judged; what is known comes from the store.

What the store does not know is loaded, rendered and judged in processes of its own; this one imports torch only for
generators that ask for the target's class. ``stages`` puts together what this module calls.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import (
    ADOPTED,
    CandidateId,
    Environment,
    Target,
)
from kernelllm_judge.isolation.isolation import Isolation
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.usage import Span
from pytest_kernelllm.generate.protocol import Generator
from pytest_kernelllm.models.generator import NO_HOOK, PromptHook
from pytest_kernelllm.session.ahead import Ahead
from pytest_kernelllm.session.complete import PATIENCE_S
from pytest_kernelllm.session.drafts import Draft
from pytest_kernelllm.session.generators import Chosen
from pytest_kernelllm.session.stages import Stages

Progress = Callable[[str], None]

Batch = tuple[str, str]
"""What is judged side by side: ``Target.id`` and the name of a generator."""


class Session:
    """Generates, renders and judges on demand and a little ahead, and remembers. Close it to end its processes."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        *,
        generators: Sequence[Generator] = (),
        overrides: Callable[[Target], Overrides] = lambda target: Overrides(),
        prompt: PromptHook = NO_HOOK,
        progress: Progress = lambda text: None,
        ahead: bool = True,
        writers: bool = False,
    ) -> None:
        """Opens a session for the project at ``root``.

        Args:
            root: project root; the store lies in it.
            settings: how to run.
            generators: further generators, after those that the settings name.
            overrides: called for what a conftest says about a target.
            prompt: may replace the prompt that a language model gets.
            progress: called with a few words about what is being done.
            ahead: whether expected targets are begun while others are judged.
            writers: whether processes of their own write in any case. Else they do where more targets are expected than are
                judged side by side: a judging process that writes keeps its GPU waiting.
        """
        self.root = root
        self.settings = settings
        self._expected: dict[Batch, tuple[Target, set[CandidateId]]] = {}
        self._stages = Stages(
            root,
            settings,
            generators,
            overrides,
            prompt,
            progress,
            lambda: writers or (ahead and self._expects_many()),
        )
        self.store = self._stages.store
        self.live = self._stages.live
        """Imports a target. Raises ``SessionError`` where it cannot be imported, built or called."""
        self.history = self._stages.history
        self._outcomes: dict[tuple[str, CandidateId], Outcome] = {}
        self._ahead: Ahead[Batch] = Ahead(
            self._settle_batch, lambda: self._stages.processes.ahead if ahead else 0
        )

    @property
    def environment(self) -> Environment:
        """Where verdicts of this session hold."""
        return self._stages.judging.environment

    @property
    def isolation(self) -> Isolation:
        """What will hold the candidates' processes.

        Raises:
            IsolationError: the settings ask for more than this machine can give.
        """
        return self._stages.judging.isolation

    @property
    def search_in_words(self) -> str:
        """How long Inductor's programs are searched for the fastest one, or why not; empty without that generator."""
        if self.settings.search == 0 or "inductor" not in {each.name for each in self.generators}:
            return ""
        if self._stages.searches:
            return f"search: {self.settings.search:g} s a target for the fastest of inductor's programs"
        if self.settings.search == Settings().search:
            return ""  # nobody asked for it
        why = "there is no GPU" if self.environment.device != "cuda" else "nothing is timed"
        return f"search: off, because {why}"

    @property
    def generators(self) -> tuple[Generator, ...]:
        """All generators, in order.

        Raises:
            GenerateError: a setting names none that exists, or two have one name.
        """
        return self._stages.generators

    @property
    def chosen(self) -> Chosen:
        """The generators of the settings, and what ``auto`` went by.

        Raises:
            GenerateError: a setting names none that exists.
        """
        return self._stages.chosen

    @property
    def candidate_ids(self) -> list[CandidateId]:
        """All candidates that are asked for of each target, in order."""
        samples = range(self.settings.samples)
        return [CandidateId(generator.name, sample) for generator in self.generators for sample in samples]

    def announce(self, target: Target) -> None:
        """Announces that candidates of a target will be asked for, by this process or another."""
        self._stages.completing.announce(target)

    def expect(self, target: Target, candidate: CandidateId) -> None:
        """Announces that ``outcome`` will be called, after those announced before.

        A target's candidates are judged side by side, and the next targets are begun meanwhile.
        """
        batch = target.id, candidate.generator
        self._expected.setdefault(batch, (target, set()))[1].add(candidate)
        self._ahead.expect(batch)

    def outcome(self, target: Target, candidate: CandidateId) -> Outcome:
        """Returns what became of one candidate; writes, renders and judges what is not yet known. Not thread-safe.

        Args:
            target: as the scan found it.
            candidate: one of ``candidate_ids``, or ``ADOPTED``.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        key = target.id, candidate
        with _quiet("torch.__trace"):
            if key not in self._outcomes:
                self.expect(target, candidate)
                self._stages.processes.prefer(target)
                self._ahead.wait_for((target.id, candidate.generator))
            if key not in self._outcomes:  # it was not expected when the others were begun
                self._settle(target, [candidate])
        return self._outcomes[key]

    @property
    def usage(self) -> tuple[int, list[Span]]:
        """The number of slots, and when they were judging; see ``Usage.of``."""
        spans = self._stages.processes.spans
        return self._stages.processes.slots if spans else 0, spans

    @property
    def notes(self) -> list[str]:
        """What the owners of the targets should know, one sentence each."""
        return list(self._stages.processes.notes)

    def why_unusable(self, target: Target) -> SessionError | None:
        """Returns why a target itself cannot be imported, built or called; None if it can, or if none can here."""
        return self._stages.processes.error_of(target)

    def drafts(self, target: Target) -> Iterator[Draft]:
        """Yields all candidates of a target as they were written and rendered, without judging them.

        Raises:
            SessionError: the target cannot be imported, built or called.
        """
        for generator in self.generators:
            yield from self._stages.drafting.every(target, generator)

    @property
    def side_by_side(self) -> int:
        """How many targets ``drafts`` and ``judged`` should work on at once; both are thread-safe."""
        return self._stages.processes.side_by_side

    def judged(self, target: Target, drafts: Sequence[Outcome]) -> list[Outcome]:
        """Returns what became of drafts, in their order; judges what is not yet known.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        return self._stages.judged(target, drafts)

    def repaired(self, target: Target, answered: Sequence[Draft]) -> list[Outcome]:
        """Returns what became of judged answers in the repair rounds that the settings ask for, in their order.

        Args:
            target: that they are for.
            answered: of one generator.

        Raises:
            SessionError: the generator cannot work, or nothing can be judged here.
        """
        return self._stages.repaired(target, answered)

    def stream(self, target: Target) -> Iterator[str]:
        """Yields the first candidate's text, piece by piece while it is written; nothing where it cannot be watched.

        Raises:
            SessionError: the target cannot be imported, built or called.
            GenerateError: the generator cannot work.
        """
        return self._stages.completing.stream(self.generators[0], target)

    def close(self) -> None:
        """Ends the judging processes, and what is being written."""
        self._stages.processes.close()  # first: others wait for them
        self._stages.completing.close()
        self._ahead.join(PATIENCE_S)

    def _expects_many(self) -> bool:
        """Whether more targets are expected than are judged side by side."""
        return len({target.id for target, _ in self._expected.values()}) > self._stages.processes.slots

    # ------------------------------------------------------------------ from completion to outcome

    def _settle_batch(self, batch: Batch) -> None:
        # With the others of its generator only: where one fails, the others' candidates are judged all the same.
        target, expected = self._expected[batch]
        self._settle(target, sorted(expected, key=lambda each: each.sample))

    def _settle(self, target: Target, ids: Sequence[CandidateId]) -> None:
        drafts = self._drafts(target, ids)
        completions = {draft.id: completion for draft, completion in drafts}
        found: dict[CandidateId, Outcome] = {}
        try:
            for outcome in self._stages.deciding.outcomes(target, [draft for draft, _ in drafts]):
                found[outcome.id] = outcome
            if ids[0] != ADOPTED:
                answered = [(found[each], completions[each]) for each in ids]
                found |= {outcome.id: outcome for outcome in self.repaired(target, answered)}
        finally:  # where one fails, what became of the others is known all the same
            self._outcomes |= {(target.id, each): outcome for each, outcome in found.items()}

    def _drafts(self, target: Target, ids: Sequence[CandidateId]) -> list[Draft]:
        """Candidates of one generator, written and rendered; or the adopted one, read."""
        if ids[0] == ADOPTED:
            return [self._stages.drafting.adopted(target)]
        return self._stages.drafting.of(target, self._stages.generator(ids[0].generator), ids)


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silences a logger: torch's structured trace would fill pytest's captured logs with empty lines."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def open_session(*args: Any, **kwargs: Any) -> Iterator[Session]:
    """Opens a session that is closed at the end of the block; arguments are ``Session``'s."""
    session = Session(*args, **kwargs)
    try:
        yield session
    finally:
        session.close()
