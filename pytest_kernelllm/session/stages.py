"""The stages of one run, put together: who writes, renders, judges, repairs and searches, with one store and one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import CandidateId, Completion, Environment, Target
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.models.generator import PromptHook
from pytest_kernelllm.session.complete import CompleteStage
from pytest_kernelllm.session.decide import DecideStage
from pytest_kernelllm.session.drafts import Draft, Drafts
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
    from kernelllm_judge.target.live import LiveTarget


class Stages:
    """What a session consists of. Making it starts nothing."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        generators: Sequence[Generator],
        overrides: Callable[[Target], Overrides],
        prompt: PromptHook,
        progress: Callable[[str], None],
        writers: Callable[[], bool],
    ) -> None:
        """Puts the stages together; the arguments are ``Session``'s."""

        def inputs(target: Target) -> str:
            return overrides(target).fingerprint

        self._root = root
        self._settings = settings
        self._more_generators = tuple(generators)
        self._prompt = prompt
        self._progress = progress
        self.store = Store(root, settings.store)
        self.live: Callable[[Target], LiveTarget] = LiveTargets(root, overrides, progress)
        self.processes = TargetProcesses(
            root, settings, lambda: self.environment, overrides, progress, writers=writers
        )
        self.completing = CompleteStage(
            self.store, settings.samples, self._checked_live, progress, inputs, self.processes.load
        )
        self.judging = JudgeStage(root, settings, self.store, self.processes, overrides, progress)
        self.history = Histories(self.store, settings, inputs, lambda: self.environment)
        rendering = RenderStage(
            self.store, self.processes.render, inputs, lambda: self.environment.device == "cuda"
        )
        self.drafting = Drafts(root, settings.samples, self.completing, rendering, lambda: self.environment)
        turns = Turns()
        self.deciding = DecideStage(self.judging, self.history, turns, self.completing.leave_gpus)
        self._repairing = RepairStage(
            self.store,
            settings.repair,
            self._checked_live,
            self._answers,
            progress,
            inputs,
            turns.writing,
        )
        self._searching = SearchStage(
            settings.search,
            self.store,
            self.processes.measure,
            lambda: self.processes.slots,
            lambda: self.environment,
            inputs,
            progress,
        )

    @property
    def environment(self) -> Environment:
        """Where verdicts hold."""
        return self.judging.environment

    @property
    def searches(self) -> bool:
        """Whether Inductor's programs are searched for the fastest one: only where something can be timed."""
        return self._settings.search > 0 and self._settings.timing and self.environment.device == "cuda"

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
        gpu = self.judging.gpu
        around = Surroundings(
            self._root,
            self._progress,
            self._prompt,
            gpu=gpu.name if gpu else "",
            arch=gpu.arch if gpu else "",
            free=gpu.free if gpu else 0,
            write=self.processes.write,
            fastest=self._searching.fastest if self.searches else None,
        )
        return choose(self._settings, around)

    def generator(self, name: str) -> Generator:
        """Returns the generator of this name."""
        return next(each for each in self.generators if each.name == name)

    def judged(self, target: Target, drafts: Sequence[Outcome]) -> list[Outcome]:
        """Returns what became of drafts, in their order; judges what is not yet known.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        outcomes = {outcome.id: outcome for outcome in self.deciding.outcomes(target, drafts)}
        return [outcomes[draft.id] for draft in drafts]

    def repaired(self, target: Target, answered: Sequence[Draft]) -> list[Outcome]:
        """Returns what became of judged answers in the repair rounds that the settings ask for, in their order.

        Args:
            target: that they are for.
            answered: of one generator.

        Raises:
            SessionError: the generator cannot work, or nothing can be judged here.
        """
        if not answered or not self._settings.repair:
            return [outcome for outcome, _ in answered]
        generator = self.generator(answered[0][0].generator)
        try:
            return self._repairing.repaired(generator, target, answered)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def _checked_live(self, target: Target) -> LiveTarget:
        """Imports a target here, for a generator that asks for it, once a judging process has."""
        self.processes.load(target)
        return self.live(target)

    def _answers(self, target: Target, answers: Sequence[tuple[CandidateId, Completion]]) -> list[Outcome]:
        """Renders and judges completions."""
        return self.judged(target, [self.drafting.draft(target, each, one) for each, one in answers])
