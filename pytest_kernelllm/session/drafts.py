"""Candidates before they are judged: what a generator wrote, rendered; or the adopted kernel, read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.kernel_module import renamed
from kernelllm_judge.core.records import ADOPTED, Candidate, CandidateId, Completion, Target, Verdict
from kernelllm_judge.core.spans import WRITTEN
from kernelllm_judge.render.version import render_version
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.discover.adoption import adopted_file, why_missing
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.models.protocol import CUT_OFF
from pytest_kernelllm.session.complete import CompleteStage
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.session.processes import PreparingLost, TargetProcesses
from pytest_kernelllm.store.renderings import RenderingKey

Draft = tuple[Outcome, Completion]
"""An outcome without a verdict, unless the text could not be rendered, and the text."""


@dataclass(frozen=True)
class Drafts:
    """Writes and renders candidates, or reads the adopted one. Thread-safe.

    A ``SessionError`` says why a target cannot be loaded, or its generator cannot work.
    """

    context: Context
    completing: CompleteStage
    processes: TargetProcesses

    def every(self, target: Target, generator: Generator) -> Iterator[Draft]:
        """Yields the candidates that a generator has, at most as many as it is asked for."""
        for one in self._completions(target, generator, self.context.settings.samples):
            yield self.of_completion(target, CandidateId(generator.name, one.index), one), one

    def of(self, target: Target, generator: Generator, ids: Sequence[CandidateId]) -> Iterator[Draft]:
        """Yields candidates of one generator, each when it is written; one that it does not have is a draft that says why."""
        asked = {each.sample: each for each in ids}
        written, unanswered = [], []
        for one in self._completions(target, generator, max(asked) + 1):
            written.append(one)
            if one.failed and one.model:
                unanswered.append(one)
            elif one.index in asked:
                yield self.of_completion(target, asked.pop(one.index), one), one
        if unanswered and len(unanswered) == len(written):
            raise SessionError(unanswered[0].note)
        answers = {one.index: one for one in unanswered}
        for sample, each in asked.items():
            one = answers.get(sample) or self._absent(each, written)
            yield self.of_completion(target, each, one), one

    def adopted(self, target: Target) -> Draft:
        """Returns the kernel that the source names, as it stands in its file."""
        assert target.kernel is not None
        completion = Completion(ADOPTED.generator, 0, "", "kernel_module")
        draft = Outcome(target, ADOPTED)
        path = adopted_file(self.context.root, target)
        if path is None:
            return replace(draft, reason=why_missing(ProjectSources(self.context.root), target)), completion
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return replace(draft, reason=f"the adopted kernel {path} cannot be read: {error}"), completion
        return replace(draft, candidate=Candidate(target.id, source, ADOPTED.generator)), completion

    def of_completion(self, target: Target, candidate: CandidateId, completion: Completion) -> Outcome:
        """Renders a completion."""
        draft = Outcome(target, candidate, tokens=completion.tokens, cost=completion.cost)
        draft = replace(draft, unanswered=int(completion.failed))
        if not completion.text:
            return replace(draft, reason=completion.note or f"{candidate.generator} wrote nothing")
        result = self._rendered(target, completion)
        if isinstance(result, Candidate):
            return replace(draft, candidate=for_target(result, target))
        text_hash = hashlib.sha256(completion.text.encode(errors="surrogatepass")).hexdigest()
        if completion.note.startswith(CUT_OFF):  # whatever the parser makes of its end
            result = completion.note
        verdict = Verdict("rejected", "render", result, text_hash, self.context.environment)
        return replace(draft, verdict=verdict)

    def _rendered(self, target: Target, completion: Completion) -> Candidate | str:
        """Returns the candidate, or the sentence that says why there is none."""
        device = "gpu" if self.context.on_gpu else ""  # a GPU judges candidates that are made for more sizes
        version = " ".join(filter(None, (render_version(), device, self.context.inputs(target))))
        renderings, key = self.context.known.renderings, RenderingKey(target.source_hash, completion, version)
        known = renderings.known(key)
        if known is not None:
            return known
        try:
            return renderings.keep(key, self.processes.render(target, completion))
        except PreparingLost as error:
            return str(error)

    def _completions(self, target: Target, generator: Generator, count: int) -> Iterator[Completion]:
        try:
            with self.context.recorder.span(WRITTEN, target.id):
                yield from self.completing.completions(generator, target, count)
        except GenerateError as error:
            raise SessionError(str(error)) from None

    def _absent(self, candidate: CandidateId, written: Sequence[Completion]) -> Completion:
        """An empty completion that says why there is none."""
        notes = [completion.note for completion in written if not completion.text]
        count = counted(len(written), "distinct candidate")
        fewer = f"{candidate.generator} wrote {count}, not {self.context.settings.samples}"
        return Completion(
            candidate.generator, candidate.sample, "", "modelnew", note=notes[0] if notes else fewer
        )


def for_target(candidate: Candidate, target: Target) -> Candidate:
    """Returns the candidate under the target's name of today: a file that moves keeps its hashes."""
    if candidate.target == target.id:
        return candidate
    source, *others = (
        renamed(source, target.id, target.source_hash) for source in (candidate.source, *candidate.others)
    )
    return replace(candidate, target=target.id, source=source, others=tuple(others))
