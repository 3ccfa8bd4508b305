"""Certifies the addresses of an accepted candidate: for its whole domain where that can be proven, at its sizes, or not at all."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice

import torch

from kernelllm_judge.addresses.calls import ASPECTS, Followed, Shown, call_of
from kernelllm_judge.addresses.enumerate import Enumerator
from kernelllm_judge.addresses.expressions import Expressions, Node
from kernelllm_judge.addresses.formulas import Formulas
from kernelllm_judge.addresses.launches import Form, Run
from kernelllm_judge.addresses.prove import prove
from kernelllm_judge.addresses.survey import LATE, Part, Sizes, Survey, along, around_blocks, tree_of, tried
from kernelllm_judge.core.records import REACHES, Certificate, Reach
from kernelllm_judge.findings import Findings, OutOfTime
from kernelllm_judge.handle import WorkerDied, WorkerHandle
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.call import Judging

RULE = "addresses"

SECONDS = 6.0
"""That one candidate may take: of this thread's time for proofs, and of all for calls."""

PARTS = 32
"""Parts of a domain that are looked at as a whole, at most."""

POINTS = 6
"""Sizes of a part of the domain at which it is looked at where there is no proof for all of it."""

LOOKING = 2.0
"""Seconds in which smaller sizes are sought at which something is wrong; half of it is for each size that is looked at."""

EDGES = 512
"""Sizes along the edges of a domain's parts at which launches are compared with formulas, at most."""

DOMAIN: Reach = "proven for the domain"
SIZES: Reach = "proven at these sizes"


class Certifier:
    """Certifies one candidate, whose worker has loaded it."""

    def __init__(self, worker: WorkerHandle, findings: Findings, seed: int) -> None:
        """``findings`` get what is wrong."""
        self.worker, self.findings = worker, findings
        self.rng = random.Random(seed)
        self.start = time.monotonic()
        # However busy the machine is: of its own thread's time, and of the worker's by the processes that wait beside it.
        self.deadline = time.thread_time() + SECONDS
        self.latest = self.start + SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        self.make = Expressions()
        self.texts: dict[str, tuple[str, str]] = {}
        self._kernels: dict[str, Followed] = {}
        self.reached: dict[str, int] = dict.fromkeys(ASPECTS, len(REACHES) - 1)
        self.why = ""
        self.launches = 0
        self.edges = EDGES

    def certificate(self) -> Certificate:
        """Returns what has been shown."""
        reaches = {name: REACHES[reach] for name, reach in self.reached.items()}
        seconds = round(time.monotonic() - self.start, 3)
        return Certificate(**reaches, launches=self.launches, seconds=seconds, why=self.why)

    def add(self, plan: Plan, module: torch.nn.Module) -> None:
        """Looks at one case.

        Raises:
            Decision: an access is outside its tensor, programs race, or an output is not written whole.
        """
        own = tuple(plan.sizes[name] for name in plan.ranges)
        survey = Survey(
            self.worker, plan.case, plan.ranges, tree_of(module, plan.case), self.texts, self.latest
        )
        survey.run([own])
        first = survey.runs[own]
        if isinstance(first, str):
            self.lower(ASPECTS, "sampled", first)
            return
        self.launches += len(first.form.launches)
        if first.form.more:
            self.lower(ASPECTS, "sampled", "not all configurations of an autotuned kernel were looked at")
        for variant in range(first.form.variants):
            if variant:
                survey = replace(survey, variant=variant, runs={})
                survey.run([own])
            self._points(survey, [own])
            parts, seen = [tuple(survey.ranges.values())], 0
            while parts:
                seen += 1
                parts = self._part(survey, parts[0], seen + len(parts) < PARTS) + parts[1:]

    def lower(self, aspects: Sequence[str], reach: Reach, why: str) -> None:
        """Notes that aspects are shown no further than so."""
        for aspect in aspects:
            if REACHES.index(reach) < self.reached[aspect]:
                self.reached[aspect] = REACHES.index(reach)
                self.why = self.why or f"{aspect}: {why}"[:300]

    def _part(self, survey: Survey, part: Part, divide: bool) -> list[Part]:
        """Looks at a part of the domain: as a whole, and where that shows less than all, at some of its sizes.

        ``divide`` says whether it may be divided further.

        Returns:
            The parts of it that are to be looked at instead.
        """
        if time.thread_time() > self.deadline:
            self.lower(ASPECTS, SIZES, "there was no time for all of the domain")
            return []
        if divide and (parts := survey.split(part)):
            return parts
        sizes, complete = tried(part, self.rng)
        survey.run(sizes)
        if complete:
            self._points(survey, sizes)
            return []
        shown = self._whole_part(survey, part, sizes)
        for aspect, why in shown.open.items():
            self.lower([aspect], SIZES, why)
        if shown.open:
            points = list(dict.fromkeys([*sizes[:POINTS], *around_blocks(part)]))
            survey.run(points)
            self._points(survey, points)
        return []

    def _points(self, survey: Survey, sizes: Sequence[Sizes]) -> None:
        """Looks at some sizes, the smallest first."""
        for each in sorted(sizes, key=lambda s: (sum(s), s)):
            run = survey.runs[each]
            if isinstance(run, str):
                self.lower(ASPECTS, "sampled", run)
                continue
            shown = self._settled(run, max(self.deadline, time.thread_time() + LOOKING / 2))
            self._require(shown.broken, survey, each)
            for aspect, why in shown.open.items():
                self.lower([aspect], "sampled", why)

    def _settled(self, run: Run, deadline: float) -> Shown:
        """Settles a call at one size. What no proof shows is computed."""
        numbers = [self.make.constant(each) for each in run.numbers]
        call = call_of(self.make, run.form, numbers, self._kernels_of(run))
        left = prove(call, deadline)
        if not left.open:
            return left
        shown = Enumerator(call, left, deadline).run()
        for aspect in left.open if call.unknown else ():
            shown.leave(aspect, call.unknown)
        return shown

    def _require(self, broken: str, survey: Survey, sizes: Sizes) -> None:
        if broken:
            broken, sizes = self._smallest(survey, sizes, broken)
        where = ", ".join(f"{name}={size}" for name, size in survey.named(sizes).items())
        at = f", at {survey.case.name}" + (f", {where}" if where else "")
        self.findings.require(RULE, "addresses", not broken, f"{broken}{at}")

    def _smallest(self, survey: Survey, sizes: Sizes, broken: str) -> tuple[str, Sizes]:
        """Returns what is wrong at smaller sizes, if something is, and these."""
        until = time.thread_time() + LOOKING
        for axis, (low, _) in enumerate(survey.ranges.values()):
            powers = [1 << power for power in range(sizes[axis].bit_length())]
            ladder = sorted({low, low + 1, *powers, *(power + 1 for power in powers)})
            for size in ladder:
                if not low <= size < sizes[axis] or time.thread_time() > until:
                    continue
                smaller = (*sizes[:axis], size, *sizes[axis + 1 :])
                survey.run([smaller])
                run = survey.runs[smaller]
                if isinstance(run, Run) and (found := self._settled(run, until).broken):
                    broken, sizes = found, smaller
                    break
        return broken, sizes

    def _whole_part(self, survey: Survey, part: Part, sizes: Sequence[Sizes]) -> Shown:
        """Looks at all sizes of a part at once, with formulas for the numbers of its launches."""
        runs = [run for each in sizes if isinstance(run := survey.runs[each], Run)]
        ranges = dict(zip(survey.ranges, part, strict=True))
        leaves = {
            name: self.make.leaf("dimension", number)
            for number, (name, (low, high)) in enumerate(ranges.items())
            if low < high
        }
        numbers, why = None, "launches change inside of a part of the domain"
        if len(runs) == len(sizes) and len({run.form for run in runs}) == 1:
            vectors = list(zip(*(run.numbers for run in runs), strict=True))
            found = Formulas(self.make, leaves, [survey.named(s) for s in sizes]).of(vectors)
            missing = next((vector for vector in vectors if vector not in found), ())
            why = f"no formula was found for a number of a launch: {', '.join(map(str, missing[:4]))}, …"
            numbers = None if missing else [found[vector] for vector in vectors]
        if numbers is not None and (others := self._others(survey, part, runs[0].form, numbers, leaves)):
            self._points(survey, others[:POINTS])
            where = ", ".join(f"{name}={size}" for name, size in survey.named(others[0]).items())
            numbers, why = None, f"a number of a launch has no formula at {where}"
        if numbers is None:
            return Shown(
                dict.fromkeys(ASPECTS, next((s for s in map(survey.key, sizes) if isinstance(s, str)), why))
            )
        dimensions = {leaf: ranges[name] for name, leaf in leaves.items()}
        call = call_of(self.make, runs[0].form, numbers, self._kernels_of(runs[0]), dimensions)
        return prove(call, self.deadline)

    def _others(
        self, survey: Survey, part: Part, form: Form, numbers: Sequence[Node], leaves: Mapping[str, Node]
    ) -> list[Sizes]:
        """Returns the sizes along a part's edges at which launches are not as formulas say: Python can compute anything."""
        edges = list(islice(along(part), self.edges))
        self.edges -= len(edges)
        survey.run(edges)
        others = []
        for sizes in edges:
            named, run = survey.named(sizes), survey.runs[sizes]
            if run == LATE:  # then there is none for a proof either
                break
            by = {leaf: self.make.constant(named[name]) for name, leaf in leaves.items()}
            values = {node: self.make.replace(node, by).value for node in set(numbers)}
            if not isinstance(run, Run) or (run.form, run.numbers) != (form, tuple(map(values.get, numbers))):
                others.append(sizes)
        return others

    def _kernels_of(self, run: Run) -> Mapping[str, Followed]:
        for each in run.form.launches:
            if each.kernel not in self._kernels:
                self._kernels[each.kernel] = Followed.of(
                    *self.texts.get(each.kernel, (each.kernel, "")), self.make
                )
        return self._kernels


def certify(opening: AbstractContextManager[Judging], plans: Sequence[Plan], seed: int) -> Certificate:
    """Certifies a candidate.

    Args:
        opening: gives a worker that has loaded the candidate, and can compile.
        plans: for the cases that it supports.
        seed: chooses sizes that a candidate must not predict.

    Raises:
        Decision: an access is outside its tensor, programs race, or an output is not written whole.
    """
    try:
        with opening as judging:
            certifier = Certifier(judging.worker, judging.findings, seed)
            try:
                for plan in plans:
                    certifier.add(plan, judging.references.module(plan.case))
            except WorkerDied as error:  # what runs without values is not what ships
                certifier.lower(ASPECTS, "sampled", f"{error}")
            return certifier.certificate()
    except OutOfTime as late:
        return Certificate("sampled", "sampled", "sampled", why=late.reason)
