"""One run: targets in, outcomes out. Everything known comes from the store; torch is imported only for what is not."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.kernel_module import judged_part
from pytest_kernelllm.core.outcome import ADOPTED, Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.records import Candidate, Completion, Environment, Target, Verdict
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.judge.isolation.isolation import Isolation
from pytest_kernelllm.models.generator import NO_HOOK, PromptHook
from pytest_kernelllm.session.generators import Chosen, Surroundings, choose
from pytest_kernelllm.session.verdicts import Verdicts
from pytest_kernelllm.session.writing import Writing
from pytest_kernelllm.store.local import Store

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget

Progress = Callable[[str], None]


def hash_text(text: str) -> str:
    """SHA-256 of a text, in hex; also of one with halves of characters, as a server's JSON may hold."""
    import hashlib

    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Session:
    """Generates, renders and judges on demand, and remembers. Close it to end its processes."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        *,
        generators: Sequence[Generator] = (),
        overrides: Callable[[Target], Overrides] = lambda target: Overrides(),
        prompt: PromptHook = NO_HOOK,
        progress: Progress = lambda text: None,
    ) -> None:
        """A session for the project at ``root``.

        Args:
            root: project root; the store lies in it.
            settings: how to run.
            generators: further generators, after those the settings name.
            overrides: asked once a target for what its marker does not say.
            prompt: may replace the prompt that a language model gets.
            progress: told in a few words what is being done.
        """
        self.root = root
        self.settings = settings
        self.store = Store(root, settings.store)
        self._more_generators = tuple(generators)
        self._overrides = overrides
        self._prompt = prompt
        self._progress = progress
        self._wanted: dict[str, set[int]] = {}
        self._writing = Writing(self.store, settings.samples, self.live, progress)
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        self._live: dict[str, LiveTarget] = {}
        self._importing = threading.RLock()
        self._verdicts = Verdicts(
            settings, self.store, self.live, overrides, free_gpu=self._writing.settle, progress=progress
        )

    @property
    def environment(self) -> Environment:
        """Where verdicts of this session hold."""
        return self._verdicts.environment

    @property
    def isolation(self) -> Isolation:
        """What will hold the candidates' processes.

        Raises:
            IsolationError: the settings ask for more than this machine can give.
        """
        return self._verdicts.isolation

    @cached_property
    def generators(self) -> tuple[Generator, ...]:
        """All generators, in order.

        Raises:
            GenerateError: a setting names none that exists.
        """
        return (*self.chosen.generators, *self._more_generators)

    @cached_property
    def chosen(self) -> Chosen:
        """The generators of the settings, and what ``auto`` went by.

        Raises:
            GenerateError: a setting names none that exists.
        """
        gpu = self._verdicts.gpu
        around = Surroundings(
            self.root,
            self._progress,
            self._prompt,
            gpu=gpu.name if gpu else "",
            free=gpu.free if gpu else 0,
        )
        return choose(self.settings, around)

    @property
    def candidates_per_target(self) -> int:
        """How many candidates are asked for, over all generators."""
        return self.settings.samples * len(self.generators)

    def want(self, target: Target, index: int) -> None:
        """Announce that ``outcome`` will be asked for, so that a target's candidates are judged side by side."""
        self._wanted.setdefault(target.id, set()).add(index)

    def announce(self, target: Target) -> None:
        """Announce that candidates of a target will be asked for, by this process or another."""
        self._writing.announce(target)

    def outcome(self, target: Target, index: int) -> Outcome:
        """What became of one candidate; generates and judges what is not yet known.

        Args:
            target: as the scan found it.
            index: of the candidate, or ``ADOPTED``.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        if (target.id, index) not in self._outcomes:
            # Those of one generator: where it fails, the others' are judged all the same.
            group = index // self.settings.samples
            wanted = [i for i in self._wanted.get(target.id, set()) if i // self.settings.samples == group]
            wanted = sorted({*wanted, index})
            with _quiet("torch.__trace"):
                for outcome in self._settle(target, wanted):
                    self._outcomes[target.id, outcome.index] = outcome
        return self._outcomes[target.id, index]

    def drafts(self, target: Target) -> Iterator[tuple[Outcome, Completion]]:
        """All candidates of a target as they were written and rendered, without judging them."""
        for number, generator in enumerate(self.generators):
            for completion in self._completions(target, generator, self.settings.samples).values():
                yield (
                    self._rendered(target, number * self.settings.samples + completion.index, completion),
                    completion,
                )

    def stream(self, target: Target) -> Iterator[str]:
        """The first candidate's text, piece by piece while a language model writes it; nothing if it is known or no model's.

        Raises:
            SessionError: the target cannot be imported, built or called.
            GenerateError: the model cannot be had.
        """
        return self._writing.stream(self.generators[0], target)

    def live(self, target: Target) -> LiveTarget:
        """The target's class, imported, with its cases.

        Raises:
            SessionError: it cannot be imported, built or called.
        """
        with self._importing:
            if target.id not in self._live:
                self._progress(f"{target.name}: importing")
                _require_torch()
                from pytest_kernelllm.discover.live import TargetError, load_target

                inputs = self._overrides(target).inputs
                try:
                    self._live[target.id] = load_target(self.root, target, inputs=inputs)
                except TargetError as error:
                    raise SessionError(str(error)) from None
            return self._live[target.id]

    def close(self) -> None:
        """End the judge's processes, and what is being written."""
        self._writing.close()
        self._verdicts.close()

    # ------------------------------------------------------------------ from target to verdicts

    def _settle(self, target: Target, indices: Sequence[int]) -> list[Outcome]:
        drafts = [self._adopted(target)] if ADOPTED in indices else []
        if candidates := [i for i in indices if i >= 0]:
            drafts += self._candidates(target, candidates)
        return self._verdicts.of(target, drafts)

    def _adopted(self, target: Target) -> Outcome:
        """The kernel that the source names, as it stands in its file."""
        from pytest_kernelllm.discover.adoption import adopted_file

        assert target.kernel is not None
        path = adopted_file(self.root, target)
        if path is None:
            return Outcome(target, ADOPTED, reason=f"the adopted kernel {target.kernel} is not there")
        source = judged_part(path.read_text(encoding="utf-8"))
        return Outcome(target, ADOPTED, Candidate(target.id, ADOPTED, source, "adopted"), generator="adopted")

    def _candidates(self, target: Target, indices: Sequence[int]) -> list[Outcome]:
        samples = self.settings.samples
        drafts = []
        for number, generator in enumerate(self.generators):
            wanted = [i for i in indices if i // samples == number]
            if not wanted:
                continue
            completions = self._completions(target, generator, max(wanted) % samples + 1)
            for index in wanted:
                within = index % samples
                if within in completions:
                    drafts.append(self._rendered(target, index, completions[within]))
                else:
                    notes = [c.note for c in completions.values() if not c.text]
                    fewer = f"{generator.name} wrote {len(completions)} distinct candidates, not {samples}"
                    reason = notes[0] if notes else fewer
                    drafts.append(Outcome(target, index, reason=reason, generator=generator.name))
        return drafts

    def _completions(self, target: Target, generator: Generator, count: int) -> dict[int, Completion]:
        try:
            return self._writing.completions(generator, target, count)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def _rendered(self, target: Target, index: int, completion: Completion) -> Outcome:
        from pytest_kernelllm.generate.render.version import RENDER_VERSION

        draft = Outcome(
            target, index, generator=completion.generator, tokens=completion.tokens, cost=completion.cost
        )
        if not completion.text:
            return replace(draft, reason=completion.note or f"{completion.generator} wrote nothing")
        result = self.store.rendering(completion, target.source_hash, RENDER_VERSION)
        if result is None:
            live = self.live(target)
            from pytest_kernelllm.generate.render.render import RenderError, render

            try:
                result = render(completion, live)
            except RenderError as error:
                result = str(error)
            self.store.add_rendering(completion, target.source_hash, RENDER_VERSION, result)
        if isinstance(result, str):
            verdict = Verdict("rejected", "render", result, hash_text(completion.text), self.environment)
            return replace(draft, verdict=verdict)
        return replace(draft, candidate=replace(result, index=index))


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence a logger: torch's structured trace would fill pytest's captured logs with empty lines."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _require_torch() -> None:
    for name in ("torch", "triton"):
        try:
            __import__(name)
        except ImportError:
            raise SessionError(
                f"{name} is not installed, so nothing can be judged; run `pip install 'pytest-kernelllm[torch]'`."
            ) from None


@contextlib.contextmanager
def open_session(*args: Any, **kwargs: Any) -> Iterator[Session]:
    """A session that is closed at the end of the block; arguments are ``Session``'s."""
    session = Session(*args, **kwargs)
    try:
        yield session
    finally:
        session.close()
