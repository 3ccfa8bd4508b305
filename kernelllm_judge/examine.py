"""Checks one case of a target: runs all its probes and applies every rule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernelllm_judge import deciding, directing, mutants
from kernelllm_judge.beside import Beside
from kernelllm_judge.core.records import Check
from kernelllm_judge.directing import Search
from kernelllm_judge.findings import WAITING
from kernelllm_judge.plans import Plan
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import Judging, ProbeRun, run_probe
from kernelllm_judge.timer import Timer
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.probes import Probe


def examine(judging: Judging, plan: Plan, rules: Sequence[Rule], timer: Timer, beside: Beside) -> bool:
    """Runs all probes of one case and applies every rule to each.

    Args:
        timer: holds the GPU together with other checkers.
        beside: runs meanwhile; may have decided.

    Returns:
        Whether the case counts: at least one probe is discriminating, so it can tell right from wrong.

    Raises:
        Decision: the candidate broke a rule.
        OriginalError: the original fails at a probe.
        WorkerDied: the worker process ended.
    """

    probes = _Probes(judging, rules, timer, beside, plan.aligned)
    # Rules such as `decoy` need a probe that can tell right from wrong.
    kept = probes.run_all(plan.main)
    given = _discriminating(kept)
    further, others = plan.further, ""
    for substitute in () if given else plan.substitutes:
        drawn = probes.run_all([substitute])
        if _discriminating(drawn):
            # Where it takes other weights to tell right from wrong, it does so at every probe.
            further = tuple(replace(probe, normalized=substitute.normalized) for probe in further)
            kept, others = drawn, "other weights" if substitute.normalized else "others"
            break
        del drawn  # before the next one is prepared
    if found := _discriminating(kept):
        probes.check_case(kept)
        kept = None  # its inputs may be large
    later = probes.run_all(judging.references.asked(further))
    if not found:
        probes.check_case(later if _discriminating(later) else kept)
    indistinct = [f"{name} would pass as its output at {where}" for where, name in probes.ran if name]
    discriminating = [where for where, name in probes.ran if not name]
    detail = ""
    if not discriminating:
        advice = (
            "nor can others that the judge drew, so its outputs may not depend on its inputs"
            if plan.substitutes
            else "give inputs whose outputs differ"
        )
        detail = (
            f"the inputs of case {plan.case.name} cannot tell right from wrong: {indistinct[0]}; {advice}"
        )
    elif not given:
        detail = (
            f"the given inputs of case {plan.case.name} cannot tell right from wrong, so the judge drew "
            f"{others or 'others'} that the original accepts, such as {discriminating[0]}"
        )
    counts = bool(discriminating)
    check = Check("discriminating inputs", counts, indistinct[-1] if indistinct else None, None, detail)
    judging.findings.checks.append(check)
    return counts


def examine_decisions(
    judging: Judging, source: str, plans: Sequence[Plan], rules: Sequence[Rule], timer: Timer, beside: Beside
) -> None:
    """Requires that every decision of a candidate was seen either way; runs probes where others may be seen.

    Raises:
        Decision: one was not, or the candidate broke a rule.
        OriginalError: the original fails at a probe.
        WorkerDied: the worker process ended.
    """
    if deciding.RULE not in judging.findings.rules:
        return
    for plan in plans:
        lacking = deciding.missing(source, judging.findings)
        found = deciding.probes_for(source, lacking, judging, plan) if plan.ranges else []
        _Probes(judging, rules, timer, beside, plan.aligned).run_all(found)
    if lacking := deciding.missing(source, judging.findings):
        deciding.refuse(source, lacking, judging, plans)
    if judging.on_gpu:
        beside.wait()
    for plan in plans:
        _examine_kernels(_Probes(judging, rules, timer, beside, plan.aligned), plan)
    directing.refuse(source, judging.findings.left)
    if mutants.RULE in judging.findings.rules:
        if not judging.on_gpu:
            mutants.find(judging, plans)
        mutants.refuse(source, judging.findings.mutants)


def _examine_kernels(probes: _Probes, plan: Plan) -> None:
    """Seeks probes at which kernels decide otherwise; on a GPU those are run that were found in the interpreter beside."""
    judging, findings = probes.judging, probes.judging.findings
    if judging.on_gpu:
        for found in findings.directed:
            if found.case == plan.case.name:
                sizes = (plan.main[0].sizes, tuple(plan.small.items())) if found.directed else (found.sizes,)
                probes.run_all(replace(found, sizes=each) for each in dict.fromkeys(sizes))
        return
    directing.doubt(judging, findings.sites)
    if findings.sites.open(nonfinite=plan.nonfinite):
        search = Search(plan, findings.sites)
        for probe in search.probes():
            if probes.run_all([probe]) is not None:
                search.ran.append(probe)
                directing.doubt(judging, findings.sites)
        findings.left = search.left()


@dataclass(frozen=True)
class _Probes:
    """Runs probes and applies every rule to each, see ``examine``."""

    judging: Judging
    rules: Sequence[Rule]
    timer: Timer
    beside: Beside
    aligned: bool
    """See ``Plan``."""
    ran: list[tuple[str, str | None]] = field(default_factory=list)
    """The probes that ran, in words, each with the trivial output that would pass there."""

    def run_all(self, probes: Iterable[Probe]) -> ProbeRun | None:
        """Returns the first discriminating run, else the first. The others' data, which may be large, is dropped."""
        kept: ProbeRun | None = None
        for probe in probes:
            self.beside.raise_decision()
            run = self._run(probe)
            if run is not None:
                self.ran.append((run.where, run.prepared.trivial))
                if kept is None or (not _discriminating(kept) and _discriminating(run)):
                    kept = run
            del run  # before the next one is prepared
        return kept

    def _run(self, probe: Probe) -> ProbeRun | None:
        findings = self.judging.findings
        try:
            with self._shared("reference outputs"):
                prepared = self.judging.references.prepare(probe)
        except Unasked as nothing:
            if f"{nothing}":
                findings.checks.append(
                    Check(f"not asked: {probe.describe()}", True, None, None, f"{nothing}")
                )
            return None
        with self._shared("calls"):
            run = run_probe(self.judging, prepared)
        for rule in self.rules:
            with self._shared("checks"):
                rule.check_run(run)
        return run

    def check_case(self, run: ProbeRun | None) -> None:
        """Applies every rule to the case, whose probe of the main sizes always runs."""
        assert run is not None
        for rule in self.rules:
            with self._shared("further calls"):
                rule.check_case(CaseRun(run, self.aligned))

    @contextlib.contextmanager
    def _shared(self, part: str) -> Iterator[None]:
        """Holds the GPU together with others for a part of the verdict; notes how long somebody timed on it before.

        Short parts: whoever wants to time waits for them, and all others for him.
        """
        durations = self.judging.findings.durations
        with contextlib.ExitStack() as held:
            if self.judging.on_gpu:
                with durations.part(WAITING):
                    held.enter_context(self.timer.sharing())
            with durations.part(part):
                yield


def _discriminating(run: ProbeRun | None) -> bool:
    return run is not None and run.prepared.trivial is None
