"""One run: targets in, outcomes out. Completions are written, rendered, and judged; what is known comes from the store.

This module puts the three stages together. What the store does not know is loaded, rendered and judged in processes of its own;
this one imports torch only for generators that ask for the target's class.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.records import (
    ADOPTED,
    Candidate,
    CandidateId,
    Completion,
    Environment,
    Target,
    Verdict,
)
from pytest_kernelllm.core.usage import Span
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.discover.adoption import adopted_file
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.judge.isolation.isolation import Isolation
from pytest_kernelllm.models.generator import NO_HOOK, PromptHook
from pytest_kernelllm.session.ahead import Ahead
from pytest_kernelllm.session.complete import PATIENCE_S, CompleteStage
from pytest_kernelllm.session.generators import Chosen, Surroundings, check_names, choose
from pytest_kernelllm.session.history import Histories
from pytest_kernelllm.session.judge import JudgeStage
from pytest_kernelllm.session.live import LiveTargets
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.session.render import RenderStage
from pytest_kernelllm.session.repair import RepairStage, Turns
from pytest_kernelllm.session.search import SearchStage
from pytest_kernelllm.store import Store

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget

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
            writers: whether processes of their own write, for runs over many targets.
        """
        self.root = root
        self.settings = settings
        self.store = Store(root, settings.store)
        self.live: Callable[[Target], LiveTarget] = LiveTargets(root, overrides, progress)
        """Imports a target. Raises ``SessionError`` where it cannot be imported, built or called."""
        self._more_generators = tuple(generators)
        self._prompt = prompt
        self._progress = progress
        self._expected: dict[Batch, tuple[Target, set[CandidateId]]] = {}
        self._outcomes: dict[tuple[str, CandidateId], Outcome] = {}

        def inputs(target: Target) -> str:
            return overrides(target).fingerprint

        self._processes = TargetProcesses(
            root, settings, lambda: self.environment, overrides, progress, writers=writers
        )
        self._completing = CompleteStage(
            self.store, settings.samples, self._checked_live, progress, inputs, self._processes.load
        )
        self._judging = JudgeStage(settings, self.store, self._processes, overrides, progress)
        self.history = Histories(self.store, settings, inputs, lambda: self.environment)
        self._turns = Turns()
        self._repairing = RepairStage(
            self.store,
            settings.repair,
            self._checked_live,
            self._answers,
            progress,
            inputs,
            self._turns.writing,
        )
        self._searching = SearchStage(
            settings.search,
            self.store,
            self._processes.measure,
            lambda: self._processes.slots,
            lambda: self.environment,
            inputs,
            progress,
        )
        self._rendering = RenderStage(
            self.store, self._processes.render, inputs, lambda: self.environment.device == "cuda"
        )
        # One slot belongs to the target that is waited for.
        self._ahead: Ahead[Batch] = Ahead(
            self._settle_batch, lambda: self._processes.slots - 1 if ahead else 0
        )

    @property
    def environment(self) -> Environment:
        """Where verdicts of this session hold."""
        return self._judging.environment

    @property
    def isolation(self) -> Isolation:
        """What will hold the candidates' processes.

        Raises:
            IsolationError: the settings ask for more than this machine can give.
        """
        return self._judging.isolation

    @property
    def searches(self) -> bool:
        """Whether Inductor's programs are searched for the fastest one: only where something can be timed."""
        return self.settings.search > 0 and self.settings.timing and self.environment.device == "cuda"

    @property
    def search_in_words(self) -> str:
        """How long Inductor's programs are searched for the fastest one, or why not; empty without that generator."""
        if self.settings.search == 0 or "inductor" not in {each.name for each in self.generators}:
            return ""
        if self.searches:
            return f"search: {self.settings.search:g} s a target for the fastest of inductor's programs"
        why = "there is no GPU" if self.environment.device != "cuda" else "nothing is timed"
        return f"search: off, because {why}"

    @cached_property
    def generators(self) -> tuple[Generator, ...]:
        """All generators, in order.

        Raises:
            GenerateError: a setting names none that exists, or two have one name.
        """
        generators = (*self.chosen.generators, *self._more_generators)
        check_names(generators)
        return generators

    @cached_property
    def chosen(self) -> Chosen:
        """The generators of the settings, and what ``auto`` went by.

        Raises:
            GenerateError: a setting names none that exists.
        """
        gpu = self._judging.gpu
        around = Surroundings(
            self.root,
            self._progress,
            self._prompt,
            gpu=gpu.name if gpu else "",
            arch=gpu.arch if gpu else "",
            free=gpu.free if gpu else 0,
            write=self._processes.write,
            fastest=self._searching.fastest if self.searches else None,
        )
        return choose(self.settings, around)

    @property
    def candidate_ids(self) -> list[CandidateId]:
        """All candidates that are asked for of each target, in order."""
        samples = range(self.settings.samples)
        return [CandidateId(generator.name, sample) for generator in self.generators for sample in samples]

    def announce(self, target: Target) -> None:
        """Announces that candidates of a target will be asked for, by this process or another."""
        self._completing.announce(target)

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
                self._processes.prefer(target)
                self._ahead.wait_for((target.id, candidate.generator))
            if key not in self._outcomes:  # it was not expected when the others were begun
                self._settle(target, [candidate])
        return self._outcomes[key]

    @property
    def usage(self) -> tuple[int, list[Span]]:
        """The number of slots, and when they were judging; see ``Usage.of``."""
        spans = self._processes.spans
        return self._processes.slots if spans else 0, spans

    @property
    def notes(self) -> list[str]:
        """What the owners of the targets should know, one sentence each."""
        return list(self._processes.notes)

    def why_unusable(self, target: Target) -> SessionError | None:
        """Returns why a target itself cannot be imported, built or called; None if it can, or if none can here."""
        return self._processes.error_of(target)

    def drafts(self, target: Target) -> Iterator[tuple[Outcome, Completion]]:
        """Yields all candidates of a target as they were written and rendered, without judging them.

        Raises:
            SessionError: the target cannot be imported, built or called.
        """
        for generator in self.generators:
            for completion in self._completions(target, generator, self.settings.samples).values():
                yield (
                    self._draft(target, CandidateId(generator.name, completion.index), completion),
                    completion,
                )

    @property
    def side_by_side(self) -> int:
        """How many targets ``drafts`` and ``judged`` should work on at once; both are thread-safe."""
        return self._processes.side_by_side

    def judged(self, target: Target, drafts: Sequence[Outcome]) -> list[Outcome]:
        """Returns what became of drafts, in their order; judges what is not yet known.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        outcomes = {outcome.id: outcome for outcome in self._judged(target, drafts)}
        return [outcomes[draft.id] for draft in drafts]

    def repaired(self, target: Target, answered: Sequence[tuple[Outcome, Completion]]) -> list[Outcome]:
        """Returns what became of judged answers in the repair rounds that the settings ask for, in their order.

        Args:
            target: that they are for.
            answered: of one generator.

        Raises:
            SessionError: the generator cannot work, or nothing can be judged here.
        """
        generator = self._generator(answered[0][0].generator) if answered else None
        if generator is None or not self.settings.repair:
            return [outcome for outcome, _ in answered]
        try:
            return self._repairing.repaired(generator, target, answered)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def stream(self, target: Target) -> Iterator[str]:
        """Yields the first candidate's text, piece by piece while it is written; nothing where it cannot be watched.

        Raises:
            SessionError: the target cannot be imported, built or called.
            GenerateError: the generator cannot work.
        """
        return self._completing.stream(self.generators[0], target)

    def close(self) -> None:
        """Ends the judging processes, and what is being written."""
        self._processes.close()  # first: others wait for them
        self._completing.close()
        self._ahead.join(PATIENCE_S)

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
            for outcome in self._judged(target, [draft for draft, _ in drafts]):
                found[outcome.id] = self._with_history(outcome)
            if ids[0] != ADOPTED:
                answered = [(found[each], completions[each]) for each in ids]
                found |= {outcome.id: outcome for outcome in self.repaired(target, answered)}
        finally:  # where one fails, what became of the others is known all the same
            self._outcomes |= {(target.id, each): outcome for each, outcome in found.items()}

    def _checked_live(self, target: Target) -> LiveTarget:
        """Imports a target here, for a generator that asks for it, once a judging process has."""
        self._processes.load(target)
        return self.live(target)

    def _drafts(self, target: Target, ids: Sequence[CandidateId]) -> list[tuple[Outcome, Completion]]:
        """Candidates of one generator, written and rendered; or the adopted one, read."""
        if ids[0] == ADOPTED:
            return [(self._adopted(target), Completion(ADOPTED.generator, 0, "", "kernel_module"))]
        written = self._completions(target, self._generator(ids[0].generator), ids[-1].sample + 1)
        found = [written.get(each.sample) or self._absent(each, written) for each in ids]
        return [(self._draft(target, each, one), one) for each, one in zip(ids, found, strict=True)]

    def _generator(self, name: str) -> Generator:
        return next(each for each in self.generators if each.name == name)

    def _answers(self, target: Target, answers: Sequence[tuple[CandidateId, Completion]]) -> list[Outcome]:
        """Renders and judges completions."""
        return self.judged(target, [self._draft(target, each, completion) for each, completion in answers])

    def _completions(self, target: Target, generator: Generator, count: int) -> dict[int, Completion]:
        try:
            return self._completing.completions(generator, target, count)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def _absent(self, candidate: CandidateId, written: dict[int, Completion]) -> Completion:
        """An empty completion that says why there is none."""
        notes = [completion.note for completion in written.values() if not completion.text]
        count = counted(len(written), "distinct candidate")
        fewer = f"{candidate.generator} wrote {count}, not {self.settings.samples}"
        return Completion(
            candidate.generator, candidate.sample, "", "modelnew", note=notes[0] if notes else fewer
        )

    def _draft(self, target: Target, candidate: CandidateId, completion: Completion) -> Outcome:
        draft = Outcome(target, candidate, tokens=completion.tokens, cost=completion.cost)
        if not completion.text:
            return replace(draft, reason=completion.note or f"{candidate.generator} wrote nothing")
        result = self._rendering.render(target, completion)
        if isinstance(result, Candidate):
            return replace(draft, candidate=result)
        text_hash = hashlib.sha256(completion.text.encode(errors="surrogatepass")).hexdigest()
        return replace(draft, verdict=Verdict("rejected", "render", result, text_hash, self.environment))

    def _adopted(self, target: Target) -> Outcome:
        """The kernel that the source names, as it stands in its file."""
        assert target.kernel is not None
        draft = Outcome(target, ADOPTED)
        path = adopted_file(self.root, target)
        if path is None:
            return replace(draft, reason=f"the adopted kernel {target.kernel} is not there")
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return replace(draft, reason=f"the adopted kernel {path} cannot be read: {error}")
        return replace(draft, candidate=Candidate(target.id, source, ADOPTED.generator))

    def _with_history(self, outcome: Outcome) -> Outcome:
        if outcome.id != ADOPTED or outcome.verdict is None:
            return outcome
        return replace(outcome, history=self.history.of(outcome.target, outcome.verdict))

    def _judged(self, target: Target, drafts: Sequence[Outcome]) -> Iterator[Outcome]:
        with self._turns.judging():
            for outcome in self._judged_first(target, drafts):
                yield self._best_match(target, outcome)

    def _best_match(self, target: Target, first: Outcome) -> Outcome:
        """Tries the completion's other candidates where the likeliest is wrong; returns the one that is right."""
        outcome = first
        while outcome.rejected and outcome.candidate and outcome.candidate.next:
            draft = replace(first, candidate=outcome.candidate.next, verdict=None, cached=False)
            [outcome] = self._judged_first(target, [draft])
        return first if outcome.rejected else outcome

    def _judged_first(self, target: Target, drafts: Sequence[Outcome]) -> Iterator[Outcome]:
        """Judges the likeliest candidate of each completion."""
        unknown: list[tuple[Outcome, Candidate]] = []
        for draft in drafts:
            if draft.candidate is None:
                yield draft
            elif (verdict := self._judging.known(target, draft.candidate)) is not None:
                yield replace(draft, verdict=verdict, cached=True)
            else:
                unknown.append((draft, draft.candidate))
        if not unknown:
            return
        if self.environment.device == "cuda":
            self._completing.leave_gpus()  # nobody else may use a GPU on which something is timed
        verdicts = self._judging.verdicts(target, [candidate for _, candidate in unknown])
        for (draft, _), verdict in zip(unknown, verdicts, strict=True):
            yield replace(draft, verdict=verdict)


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
