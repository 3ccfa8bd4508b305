"""The first two stages together: candidates as they were written and rendered, before anything is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import (
    ADOPTED,
    Candidate,
    CandidateId,
    Completion,
    Environment,
    Target,
    Verdict,
)
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.discover.adoption import adopted_file, why_missing
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.session.complete import CompleteStage
from pytest_kernelllm.session.render import RenderStage

Draft = tuple[Outcome, Completion]
"""An outcome without a verdict, unless the text could not be rendered, and the text."""


class Drafts:
    """Writes and renders candidates, or reads the adopted one. Thread-safe."""

    def __init__(
        self,
        root: Path,
        samples: int,
        completing: CompleteStage,
        rendering: RenderStage,
        environment: Callable[[], Environment],
    ) -> None:
        """Writes nothing yet.

        Args:
            root: project root.
            samples: how many candidates each generator is asked for.
            completing: writes.
            rendering: renders.
            environment: where verdicts of the session hold.
        """
        self._root = root
        self._samples = samples
        self._completing = completing
        self._rendering = rendering
        self._environment = environment

    def every(self, target: Target, generator: Generator) -> Iterator[Draft]:
        """Yields the candidates that a generator has, at most as many as it is asked for.

        Raises:
            SessionError: the target cannot be imported, built or called, or the generator cannot work.
        """
        written = self._completions(target, generator, self._samples).values()
        for one in written:
            yield self.draft(target, CandidateId(generator.name, one.index), one), one

    def of(self, target: Target, generator: Generator, ids: Sequence[CandidateId]) -> list[Draft]:
        """Returns candidates of one generator; one that it does not have is a draft that says why.

        Args:
            target: what they are for.
            generator: who writes.
            ids: in order.

        Raises:
            SessionError: the target cannot be imported, built or called, or the generator cannot work.
        """
        written = self._completions(target, generator, ids[-1].sample + 1)
        found = [written.get(each.sample) or self._absent(each, written) for each in ids]
        return [(self.draft(target, each, one), one) for each, one in zip(ids, found, strict=True)]

    def adopted(self, target: Target) -> Draft:
        """Returns the kernel that the source names, as it stands in its file."""
        assert target.kernel is not None
        completion = Completion(ADOPTED.generator, 0, "", "kernel_module")
        draft = Outcome(target, ADOPTED)
        path = adopted_file(self._root, target)
        if path is None:
            return replace(draft, reason=why_missing(ProjectSources(self._root), target)), completion
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return replace(draft, reason=f"the adopted kernel {path} cannot be read: {error}"), completion
        return replace(draft, candidate=Candidate(target.id, source, ADOPTED.generator)), completion

    def draft(self, target: Target, candidate: CandidateId, completion: Completion) -> Outcome:
        """Renders a completion."""
        draft = Outcome(target, candidate, tokens=completion.tokens, cost=completion.cost)
        if not completion.text:
            return replace(draft, reason=completion.note or f"{candidate.generator} wrote nothing")
        result = self._rendering.render(target, completion)
        if isinstance(result, Candidate):
            return replace(draft, candidate=result)
        text_hash = hashlib.sha256(completion.text.encode(errors="surrogatepass")).hexdigest()
        return replace(draft, verdict=Verdict("rejected", "render", result, text_hash, self._environment()))

    def _completions(self, target: Target, generator: Generator, count: int) -> dict[int, Completion]:
        try:
            return self._completing.completions(generator, target, count)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def _absent(self, candidate: CandidateId, written: dict[int, Completion]) -> Completion:
        """An empty completion that says why there is none."""
        notes = [completion.note for completion in written.values() if not completion.text]
        count = counted(len(written), "distinct candidate")
        fewer = f"{candidate.generator} wrote {count}, not {self._samples}"
        return Completion(
            candidate.generator, candidate.sample, "", "modelnew", note=notes[0] if notes else fewer
        )
