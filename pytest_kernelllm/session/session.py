"""One run: targets in, outcomes out.

The way of a target's candidates is ``Session._settled``: they are written, rendered, judged and kept, and answers that were
rejected are repaired. ``suggest`` makes patches of what was accepted. What runs side by side lies beneath: ``ahead`` begins
targets before they are asked for, ``batch`` writes for many at once, ``turns`` shares the GPUs, and ``processes`` does in
other processes whatever runs the user's code; this one imports torch only for generators that ask for the target's class.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.narrowing import following
from kernelllm_judge.core.records import ADOPTED, CandidateId, Completion, Target
from kernelllm_judge.core.spans import JUDGING, Recorder, Span
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.models.generator import NO_HOOK, PromptHook
from pytest_kernelllm.pool.pool_process import HURRY
from pytest_kernelllm.session.ahead import Ahead, Pace
from pytest_kernelllm.session.complete import PATIENCE_S, CompleteStage
from pytest_kernelllm.session.context import Context, Group
from pytest_kernelllm.session.drafts import Draft, Drafts
from pytest_kernelllm.session.generators import Chosen, Surroundings, check_names, choose
from pytest_kernelllm.session.history import Histories
from pytest_kernelllm.session.judge import JudgeStage
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.session.repair import RepairStage, may_improve, outcome_of
from pytest_kernelllm.session.search import SearchStage
from pytest_kernelllm.session.turns import Turns

SIDE_BY_SIDE = 32
"""Candidates of a target that are judged, or wait to be, at once."""


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
        progress: Callable[[str], None] = lambda text: None,
        ahead: bool = True,
        writers: bool = False,
        recorder: Recorder | None = None,
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
            recorder: gets what all processes do; by default one that keeps whole verdicts only.
        """
        recorder = recorder or Recorder("kernelllm", detailed=False)
        self.context = Context(root, settings, overrides, progress, prompt, recorder)
        self.history = Histories(self.context)
        self.processes = TargetProcesses(self.context, lambda: writers or (ahead and self._expects_many()))
        self._more_generators = tuple(generators)
        self._turns = Turns()
        self._completing = CompleteStage(self.context, self.processes)
        self._drafting = Drafts(self.context, self._completing, self.processes)
        self._judging = JudgeStage(self.context, self.processes)
        self._repairing = RepairStage(self.context, self.processes, self._turns)
        self._patience_s = PATIENCE_S
        self._expected: dict[Group, tuple[Target, set[CandidateId]]] = {}
        self._outcomes: dict[tuple[str, CandidateId], Outcome] = {}
        self._may_be_ahead = ahead
        self._ahead: Ahead[Group] = Ahead(self._settle, self._most_ahead)

    # ------------------------------------------------------------------ the way

    def _settled(self, target: Target, ids: Sequence[CandidateId]) -> Iterator[Outcome]:
        """Yields what becomes of a target's candidates of one generator, or of its adopted kernel, from source to verdict."""
        if ids[0] == ADOPTED:
            draft, _ = self._drafting.adopted(target)
            [outcome] = self.judged(target, [draft])
            yield self._with_history(outcome)
            return
        generator = next(each for each in self.generators if each.name == ids[0].generator)
        written: dict[CandidateId, Completion] = {}
        outcomes = self.judged(target, _each(self._drafting.of(target, generator, ids), written))
        yield from outcomes  # where repairing fails, these are known all the same
        yield from self.repaired(target, [(outcome, written[outcome.id]) for outcome in outcomes])

    def drafts(self, target: Target) -> Iterator[Draft]:
        """Yields all candidates of a target as they were written and rendered, without judging them.

        Raises:
            SessionError: the target cannot be imported, built or called.
        """
        for generator in self.generators:
            yield from self._drafting.every(target, generator)

    def judged(self, target: Target, drafts: Iterable[Outcome]) -> list[Outcome]:
        """Returns what became of drafts, in their order; judges what is not yet known, each as soon as it comes.

        Where the likeliest candidate of a completion is wrong, its other ones are tried, and the one that is right counts; so is
        one that is wrong at some calls only, for the others. What is adopted counts as it is.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        with self._turns.judging():
            outcomes = self._first_judged(target, drafts)
            for number, first in enumerate(outcomes):
                outcome = first
                while first.id != ADOPTED and outcome.candidate and outcome.verdict:
                    if (found := following(outcome.candidate, outcome.verdict)) is None:
                        break
                    other = replace(first, candidate=found, verdict=None, cached=False)
                    [outcome] = self._first_judged(target, [other])
                outcomes[number] = outcome
                if outcome.rejected and first.verdict:
                    outcomes[number] = replace(first, verdict=first.verdict.unfenced())
            return outcomes

    def _first_judged(self, target: Target, drafts: Iterable[Outcome]) -> list[Outcome]:
        found: list[Outcome | Future[Outcome]] = []
        with ThreadPoolExecutor(SIDE_BY_SIDE, target.id) as threads:
            for draft in drafts:
                known = self._judging.looked_up(target, draft)
                if known is None and self.context.on_gpu:
                    self._completing.leave_gpus()  # nobody else may use a GPU on which something is timed
                found.append(known or threads.submit(self._judging.judged, target, draft))
            return [each if isinstance(each, Outcome) else each.result() for each in found]

    def repaired(self, target: Target, answered: Sequence[Draft]) -> list[Outcome]:
        """Returns what became of judged answers in the repair rounds that the settings ask for, in their order.

        Raises:
            SessionError: the generator cannot work, or nothing can be judged here.
        """
        samples = [[each] for each in answered]
        if not samples:
            return []
        generator = next(each for each in self.generators if each.name == samples[0][0][0].generator)
        for number in range(1, self.context.settings.repair + 1 if generator.repairs else 1):
            rejected = [own for own in samples if len(own) == number and may_improve(own[-1])]
            if not rejected:
                break
            try:
                answers = self._repairing.answers(generator, target, rejected)
            except GenerateError as error:
                raise SessionError(str(error)) from None
            drafts = [
                self._drafting.of_completion(target, own[0][0].id, answer)
                for own, answer in zip(rejected, answers, strict=True)
            ]
            outcomes = self.judged(target, drafts)
            for own, outcome, answer in zip(rejected, outcomes, answers, strict=True):
                own.append((outcome, answer))
        return [outcome_of(own) for own in samples]

    def _with_history(self, outcome: Outcome) -> Outcome:
        if outcome.verdict is None:
            return outcome
        return replace(outcome, history=self.history.of(outcome.target, outcome.verdict))

    def suggest(self, outcomes: Sequence[Outcome]) -> dict[str, str]:
        """Writes patches that adopt the best accepted kernels, and returns their paths by ``Target.id``."""
        from pytest_kernelllm.suggest.suggestions import write_suggestions  # no run needs it before its end

        settings = self.context.settings
        return write_suggestions(
            self.context.store,
            self.context.root,
            outcomes,
            settings.kernels_dir,
            timed_only=settings.require_timing,
        )

    # ------------------------------------------------------------------ on demand, and a little ahead

    def warm(self) -> None:
        """Starts judging processes in the background, where the store has no verdict: there will be work for them."""
        if next(iter(self.context.store.verdicts), None) is None:
            threading.Thread(target=self.processes.warm, name="kernelllm-warm", daemon=True).start()

    def announce(self, target: Target) -> None:
        """Announces that candidates of a target will be asked for, by this process or another."""
        self._completing.announce(target)

    def expect(self, target: Target, candidate: CandidateId) -> None:
        """Announces that ``outcome`` will be called, after those announced before.

        A target's candidates are judged side by side, and the next targets are begun meanwhile.
        """
        group = Group(target.id, candidate.generator)
        self._expected.setdefault(group, (target, set()))[1].add(candidate)
        self._ahead.expect(group)

    def outcome(self, target: Target, candidate: CandidateId) -> Outcome:
        """Returns what became of one candidate; writes, renders and judges what is not yet known. Not thread-safe.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        key = target.id, candidate
        with _without_trace():
            if key not in self._outcomes:
                self.expect(target, candidate)
                self._ahead.wait_for(Group(target.id, candidate.generator))
            if key not in self._outcomes:  # it was not expected when the others were begun
                self._keep(target, [candidate])
        return self._outcomes[key]

    def ended(self, seconds: float) -> list[Group] | None:
        """Returns groups that ended and were not returned before; waits for one, at most so long, as others are worked on.

        ``outcome`` has all of a group then, or raises what ended it. None: there is none left. Not thread-safe.
        """
        with _without_trace():
            return self._ahead.ended(seconds)

    @property
    def pace(self) -> Pace:
        """How long groups took in which something was judged, and how many are left."""
        judged = {(each.target.id, each.generator) for each in self.settled if not each.cached}
        return self._ahead.pace(judged.__contains__)

    @property
    def settled(self) -> list[Outcome]:
        """What became of the candidates so far, also of those that nobody has asked for yet."""
        return list({**self._judging.settled, **self._outcomes}.values())

    def interrupt(self) -> None:
        """Gives up what is being done, so that ``close`` takes a second or two; returns at once."""
        self._patience_s = HURRY
        self.processes.interrupt()

    def close(self) -> None:
        """Ends the judging processes, and what is being written."""
        self.processes.close()  # first: others wait for them
        self._completing.close(self._patience_s)
        self._ahead.join(self._patience_s)

    def _settle(self, group: Group) -> None:
        # With the others of its generator only: where one fails, the others' candidates are judged all the same.
        target, expected = self._expected[group]
        self._keep(target, sorted(expected, key=lambda each: each.sample))

    def _keep(self, target: Target, ids: Sequence[CandidateId]) -> None:
        for outcome in self._settled(target, ids):
            self._outcomes[target.id, outcome.id] = outcome

    def _most_ahead(self) -> int:
        with contextlib.suppress(SessionError):  # who is asked for an outcome gets it
            return self.processes.ahead if self._may_be_ahead else 0
        return 0

    def _expects_many(self) -> bool:
        """Whether more targets are expected than are judged side by side."""
        return len({target.id for target, _ in self._expected.values()}) > self.processes.slots

    # ------------------------------------------------------------------ who writes

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
        context, gpu = self.context, self.context.gpu
        around = Surroundings(
            context.root,
            context.progress,
            context.prompt,
            gpu=gpu.name if gpu else "",
            arch=gpu.arch if gpu else "",
            free=gpu.free if gpu else 0,
            processes=self.processes,
            search=SearchStage(context, self.processes) if context.searches else None,
        )
        return choose(context.settings, around)

    @property
    def candidate_ids(self) -> list[CandidateId]:
        """All candidates that are asked for of each target, in order."""
        samples = range(self.context.settings.samples)
        return [CandidateId(generator.name, sample) for generator in self.generators for sample in samples]

    # ------------------------------------------------------------------ what reports say

    @property
    def search_in_words(self) -> str:
        """How long Inductor's programs are searched for the fastest one, or why not; empty without that generator."""
        uses = any(each.name == "inductor" for each in self.generators)
        return self.context.search_in_words if uses else ""

    @property
    def usage(self) -> tuple[int, tuple[Span, ...]]:
        """The number of slots, and what the processes did so far; see ``Usage.of``."""
        spans = self.context.recorder.spans
        judged = any(span.what == JUDGING for span in spans)
        return self.processes.slots if judged else 0, spans


def _each(drafts: Iterable[Draft], written: dict[CandidateId, Completion]) -> Iterator[Outcome]:
    """Yields the outcomes of drafts, and notes what each was written as."""
    for outcome, completion in drafts:
        written[outcome.id] = completion
        yield outcome


@contextlib.contextmanager
def _without_trace() -> Iterator[None]:
    """Silences torch's structured trace, which would fill pytest's captured logs with empty lines."""
    logger = logging.getLogger("torch.__trace")
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
    except KeyboardInterrupt:
        session.interrupt()
        raise
    finally:
        session.close()
