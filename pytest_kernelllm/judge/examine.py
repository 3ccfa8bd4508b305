"""Checks one case of a target: runs all its probes and applies every rule."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.plans import Plan
from pytest_kernelllm.judge.reference.acceptance import Unasked
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.rules.rule import CaseRun, Rule
from pytest_kernelllm.judge.run.call import Judging, ProbeRun, run_probe

Sharing = Callable[[], contextlib.AbstractContextManager[None]]


def examine(
    judging: Judging,
    plan: Plan,
    rules: Sequence[Rule],
    *,
    sharing: Sharing,
    before_each: Callable[[], None],
) -> bool:
    """Runs all probes of one case and applies every rule to each.

    Args:
        judging: the candidate.
        plan: the case's probes.
        rules: the rules in force.
        sharing: returns a context that holds the GPU together with other checkers.
        before_each: called before each probe; may raise ``Decision``.

    Returns:
        Whether the case counts: at least one probe is discriminating, so it can tell right from wrong.

    Raises:
        Decision: the candidate broke a rule.
        OriginalError: the original fails at a probe.
        WorkerDied: the worker process ended.
    """

    durations = judging.findings.durations

    def runs(probes: Iterable[Probe]) -> list[ProbeRun]:
        done = []
        for probe in probes:
            before_each()
            with sharing():
                try:
                    with durations.part("reference outputs"):
                        prepared = judging.references.prepare(probe)
                except Unasked as nothing:
                    if f"{nothing}":
                        check = Check(f"not asked: {probe.describe()}", True, None, None, f"{nothing}")
                        judging.findings.checks.append(check)
                    continue
                with durations.part("calls"):
                    run = run_probe(judging, prepared)
                with durations.part("checks"):
                    for rule in rules:
                        rule.check_run(run)
            done.append(run)
        return done

    def discriminating(done: list[ProbeRun]) -> ProbeRun | None:
        return next((run for run in done if run.prepared.trivial is None), None)

    def check_case(run: ProbeRun) -> None:
        with sharing(), durations.part("further calls"):
            for rule in rules:
                rule.check_case(CaseRun(run))

    main = runs(plan.main)
    # Rules such as `decoy` need a probe that can tell right from wrong.
    given = discriminating(main)
    drawn = runs(plan.substitutes) if given is None else []
    first = given or discriminating(drawn)
    if first is not None:
        check_case(first)
    every = [*main, *drawn, *runs(judging.references.merged(plan.further))]
    if first is None:
        check_case(discriminating(every) or main[0])
    indistinct = [
        f"{run.prepared.trivial} would pass as its output at {run.where}"
        for run in every
        if run.prepared.trivial is not None
    ]
    counts = len(indistinct) < len(every)
    detail = ""
    if not counts:
        advice = (
            "nor can others that the judge drew, so its outputs may not depend on its inputs"
            if drawn
            else "give inputs whose outputs differ"
        )
        detail = (
            f"the inputs of case {plan.case.name} cannot tell right from wrong: {indistinct[-1]}; {advice}"
        )
    elif given is None:
        telling = discriminating(every)
        detail = (
            f"the given inputs of case {plan.case.name} cannot tell right from wrong, so the judge drew others "
            f"that the original accepts, such as {telling.where if telling else ''}"
        )
    check = Check("discriminating inputs", counts, indistinct[-1] if indistinct else None, None, detail)
    judging.findings.checks.append(check)
    return counts
