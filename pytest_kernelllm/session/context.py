"""What the stages of a session share: the project, its settings, what a conftest says, and what is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Environment, Target
from kernelllm_judge.core.spans import Recorder
from kernelllm_judge.environment import Gpu, find_gpu
from kernelllm_judge.isolation.isolation import Isolation, probe_isolation
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.models.generator import NO_HOOK, PromptHook
from pytest_kernelllm.pool.engine import judging_environment
from pytest_kernelllm.pool.jobs import PoolFailed
from pytest_kernelllm.session.known import Known
from pytest_kernelllm.store import Store


class Group(NamedTuple):
    """What is judged side by side."""

    target: str
    """``Target.id``"""
    generator: str

    def __str__(self) -> str:
        """As the name of the thread that works on it."""
        return f"{self.target} {self.generator}"


@dataclass(frozen=True)
class Context:
    """One project and one run. Making it reads nothing yet."""

    root: Path
    """The project root; the store lies in it."""
    settings: Settings
    overrides: Callable[[Target], Overrides] = lambda target: Overrides()
    """What a conftest says about a target."""
    progress: Callable[[str], None] = lambda text: None
    """Called with a few words about what is being done."""
    prompt: PromptHook = field(default=NO_HOOK)
    """May replace the prompt that a language model gets."""
    recorder: Recorder = field(default_factory=Recorder)
    """Gets the spans of this process and of the others."""

    @cached_property
    def store(self) -> Store:
        """The project's store."""
        return Store(self.root, self.settings.store)

    @cached_property
    def known(self) -> Known:
        """What earlier runs and this one have made."""
        return Known(self.store)

    @cached_property
    def environment(self) -> Environment:
        """Where verdicts of this run hold."""
        try:
            return judging_environment(self.settings)
        except PoolFailed as error:
            raise SessionError(str(error)) from None

    @property
    def on_gpu(self) -> bool:
        """Whether candidates run on a GPU, not in Triton's interpreter."""
        return self.environment.on_gpu

    @property
    def times(self) -> bool:
        """Whether the speed of accepted candidates is measured."""
        return self.settings.timing and self.on_gpu

    @property
    def searches(self) -> bool:
        """Whether Inductor's programs are searched for the fastest one: only where something can be timed."""
        return self.settings.search > 0 and self.times

    @property
    def search_in_words(self) -> str:
        """How long Inductor's programs are searched for the fastest one, or why not; empty where nobody asked."""
        seconds = self.settings.search
        if seconds and self.searches:
            return f"search: {seconds:g} s a target for the fastest of inductor's programs"
        if seconds in (0, Settings().search):
            return ""
        return f"search: off, because {'nothing is timed' if self.on_gpu else 'there is no GPU'}"

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU in use."""
        return find_gpu() if self.on_gpu else None

    @cached_property
    def isolation(self) -> Isolation:
        """What will hold the candidates' processes."""
        return probe_isolation(self.environment.device, self.settings.isolation)

    def inputs(self, target: Target) -> str:
        """Returns the fingerprint of the inputs that a conftest gives a target; empty where the marker's are used."""
        return self.overrides(target).fingerprint
