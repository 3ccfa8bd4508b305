"""Runs one benchmark: k completions for each target, judged and counted. What the store knows is not made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Completion, Target
from pytest_kernelllm.beside.passk.levels import level_scores
from pytest_kernelllm.beside.passk.problems import BenchError, Problem
from pytest_kernelllm.beside.passk.records import Benchmark, LeftOut, Sample, TargetScore
from pytest_kernelllm.beside.passk.scores import answers_of, sample_of, score, together
from pytest_kernelllm.beside.passk.side_by_side import side_by_side
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.session.session import Session

Draft = tuple[Outcome, Completion]


def bench(
    session: Session,
    targets: Sequence[Target],
    at: Sequence[int],
    *,
    problems: Mapping[str, Problem] | None = None,
    missing: Sequence[LeftOut] = (),
    done: Callable[[TargetScore | LeftOut], None] = lambda result: None,
) -> Benchmark:
    """Generates, judges and counts. If the run is killed, the next one continues it.

    Targets are worked on side by side. Ctrl-C ends the run; what is finished by then is counted.

    Args:
        session: its settings name one generator and the number of samples.
        at: each k to give pass@k for, between 1 and the number of samples.
        problems: KernelBench's problems by ``Target.path``, if that is the benchmark.
        done: called with each target as it is finished, which need not be in their order.

    Raises:
        BenchError: there are several generators.
        SessionError: nothing can be generated or judged here, whatever the target.
        GenerateError: the generator that is named cannot work.
    """
    generator = _only_generator(session)
    settings = session.context.settings
    timed = settings.timing and session.context.environment.on_gpu
    for target in targets:
        session.announce(target)
    results: dict[str, TargetScore | LeftOut] = {}
    model = revision = ""

    def work(target: Target) -> tuple[list[Draft], list[Sample] | LeftOut]:
        return _samples(session, target)

    try:
        for target, (drafts, samples) in side_by_side(work, targets, session.processes.side_by_side):
            problem = (problems or {}).get(target.path)
            model, revision = next(((c.model, c.revision) for _, c in drafts if c.model), (model, revision))
            if isinstance(samples, LeftOut):
                results[target.id] = replace(samples, problem=problem)
            else:
                unanswered = sum(completion.failed for _, completion in drafts)
                unanswered += sum(sample.unanswered for sample in samples)
                figures = score(samples, at, timed=timed, unanswered=unanswered, repair=settings.repair)
                results[target.id] = TargetScore(target, figures, tuple(samples), problem)
            done(results[target.id])
    except KeyboardInterrupt:  # what was finished counts; the store lets another run go on
        session.interrupt()
    finished = [results[target.id] for target in targets if target.id in results]
    scores = [each for each in finished if isinstance(each, TargetScore)]
    left_out = [*missing, *(each for each in finished if isinstance(each, LeftOut))]
    return Benchmark(
        generator=generator,
        model=model,
        revision=revision,
        samples=settings.samples,
        environment=session.context.environment,
        timed=timed,
        targets=tuple(scores),
        total=together([s.score for s in scores], at),
        left_out=tuple(left_out),
        levels=level_scores(scores, left_out, timed=timed),
        unfinished=len(targets) - len(finished),
        usage=Usage.of(*session.usage),
        repair=settings.repair,
    )


def _only_generator(session: Session) -> str:
    names = [generator.name for generator in session.generators]
    if len(names) != 1:
        raise BenchError(
            f"pass@k is about the samples of one generator, not of {' and '.join(names)}: name one with --generator."
        )
    return names[0]


def _samples(session: Session, target: Target) -> tuple[list[Draft], list[Sample] | LeftOut]:
    """A target's completions and what became of each, or why the target cannot be counted."""
    drafts: list[Draft] = []
    try:
        drafts = list(session.drafts(target))
        answered = [(outcome, completion) for outcome, completion in drafts if not completion.failed]
        if all(_not_applicable(completion) for _, completion in answered):
            reason = next(
                (completion.note for _, completion in drafts if completion.note), "nothing was written"
            )
            return drafts, LeftOut(target.id, reason)
        outcomes = session.judged(target, [outcome for outcome, _ in answered])
        completions = [completion for _, completion in answered]
        outcomes = session.repaired(target, list(zip(outcomes, completions, strict=True)))
    except SessionError as error:
        if own := session.processes.error_of(target):
            return drafts, LeftOut(target.id, str(own))
        raise error from None
    samples = [
        sample_of(outcome, code=outcome.candidate is not None or _has_code(completion))
        for outcome, (_, completion) in zip(outcomes, answered, strict=True)
    ]
    if session.context.settings.repair:
        samples = [
            replace(sample, rounds=answers_of(outcome), unanswered=outcome.unanswered)
            for sample, outcome in zip(samples, outcomes, strict=True)
        ]
    return drafts, samples


def _not_applicable(completion: Completion) -> bool:
    """Whether a generator stated in its note why it has nothing for this target, which is no failed answer."""
    return not completion.text and not completion.model and bool(completion.note)


def _has_code(completion: Completion) -> bool:
    from kernelllm_judge.render.extract import ExtractError, extract

    if completion.format == "inductor":
        return True
    try:
        extract(completion.text)
    except ExtractError:
        return False
    return True
