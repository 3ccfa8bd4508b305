"""Certifies the addresses of an accepted candidate: for its whole domain where that can be proven, at its sizes, or not at all."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from kernelllm_judge.addresses.expressions import Expressions, Node
from kernelllm_judge.addresses.formulas import Formulas
from kernelllm_judge.addresses.launches import Launch, Output, Pointed, Run
from kernelllm_judge.addresses.outputs import Scenes, Settled, Whole
from kernelllm_judge.addresses.scene import Target, scene_of
from kernelllm_judge.addresses.settle import ASPECTS, outside, settle
from kernelllm_judge.addresses.slices import Access, Walk
from kernelllm_judge.addresses.survey import Part, Sizes, Survey, tree_of, tried
from kernelllm_judge.addresses.ttir import Unparsed, parse
from kernelllm_judge.core.records import REACHES, Certificate, Reach
from kernelllm_judge.findings import Findings, OutOfTime
from kernelllm_judge.handle import WorkerDied, WorkerHandle
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.call import Judging

RULE = "addresses"

SECONDS = 6.0
"""That one candidate may take."""

PARTS = 32
"""Parts of a domain that are looked at as a whole, at most."""

POINTS = 6
"""Sizes of a part of the domain at which it is looked at where there is no proof for all of it."""

LOOKING = 2.0
"""Seconds in which smaller sizes are sought at which something is wrong; half of it is for each size that is looked at."""

DOMAIN: Reach = "proven for the domain"
SIZES: Reach = "proven at these sizes"


@dataclass(frozen=True)
class Followed:
    """A kernel's accesses, and the names of its parameters; or why it cannot be followed."""

    name: str
    accesses: Sequence[Access] = ()
    parameters: Sequence[str] = ()
    unknown: str = ""


class Certifier:
    """Certifies one candidate, whose worker has loaded it."""

    def __init__(self, worker: WorkerHandle, findings: Findings, seed: int) -> None:
        """``findings`` get what is wrong."""
        self.worker, self.findings = worker, findings
        self.rng = random.Random(seed)
        self.start = time.monotonic()
        self.deadline = self.start + SECONDS
        self.make = Expressions()
        self.texts: dict[str, tuple[str, str]] = {}
        self._followed: dict[str, Followed] = {}
        self.reached: dict[str, int] = dict.fromkeys(ASPECTS, len(REACHES) - 1)
        self.why = ""
        self.launches = 0

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
            self.worker, plan.case, plan.ranges, tree_of(module, plan.case), self.texts, self.deadline
        )
        survey.run([own])
        first = survey.runs[own]
        if isinstance(first, str):
            self.lower(ASPECTS, "sampled", first)
            return
        self.launches += len(first.launches)
        if first.more:
            self.lower(ASPECTS, "sampled", "not all configurations of an autotuned kernel were looked at")
        for variant in range(first.variants):
            if variant:
                survey = replace(survey, variant=variant, runs={})
                survey.run([own])
            parts, seen = survey.parts(own), 0
            self._points(survey, [own])
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
        if time.monotonic() > self.deadline:
            self.lower(ASPECTS, SIZES, "there was no time for all of the domain")
            return []
        sizes, complete = tried(part, self.rng)
        survey.run(sizes)
        if divide and len({survey.key(each) for each in sizes}) > 1 and (parts := survey.split(part)):
            return parts
        settled = self._whole_part(survey, part, sizes, complete)
        self._require(settled.broken, survey, sizes[0])
        for aspect, why in settled.open.items():
            self.lower([aspect], SIZES, why)
        if settled.open:
            turning = [_there(survey, part, each) for each in settled.turning[:POINTS]]
            survey.run(turning)
            self._points(survey, list(dict.fromkeys([*sizes[:POINTS], *turning])))
        return []

    def _points(self, survey: Survey, sizes: Sequence[Sizes]) -> None:
        """Looks at some sizes, the smallest first."""
        for each in sorted(sizes, key=lambda s: (sum(s), s)):
            run = survey.runs[each]
            if isinstance(run, str):
                self.lower(ASPECTS, "sampled", run)
                continue
            settled = settle(self._scenes(run), max(self.deadline, time.monotonic() + LOOKING / 2))
            self._require(settled.broken, survey, each)
            for aspect, why in settled.open.items():
                self.lower([aspect], "sampled", why)

    def _require(self, broken: str, survey: Survey, sizes: Sizes) -> None:
        if broken:
            broken, sizes = self._smallest(survey, sizes, broken)
        where = ", ".join(f"{name}={size}" for name, size in survey.named(sizes).items())
        at = f", at {survey.case.name}" + (f", {where}" if where else "")
        self.findings.require(RULE, "addresses", not broken, f"{broken}{at}")

    def _smallest(self, survey: Survey, sizes: Sizes, broken: str) -> tuple[str, Sizes]:
        """Returns what is wrong at smaller sizes, if something is, and these."""
        until = time.monotonic() + LOOKING
        for axis, (low, _) in enumerate(survey.ranges.values()):
            powers = [1 << power for power in range(sizes[axis].bit_length())]
            ladder = sorted({low, low + 1, *powers, *(power + 1 for power in powers)})
            for size in ladder:
                if not low <= size < sizes[axis] or time.monotonic() > until:
                    continue
                smaller = (*sizes[:axis], size, *sizes[axis + 1 :])
                survey.run([smaller])
                run = survey.runs[smaller]
                if isinstance(run, Run) and (found := settle(self._scenes(run), until).broken):
                    broken, sizes = found, smaller
                    break
        return broken, sizes

    def _whole_part(self, survey: Survey, part: Part, sizes: Sequence[Sizes], complete: bool) -> Settled:
        """Settles all sizes of a part at once, with formulas for the numbers of its launches."""
        unsettled = Settled()
        runs = [survey.runs[each] for each in sizes]
        first = runs[0]
        if isinstance(first, str) or len({survey.key(each) for each in sizes}) > 1:
            why = first if isinstance(first, str) else "launches change inside of a part of the domain"
            for aspect in ASPECTS:
                unsettled.leave(aspect, why)
            return unsettled
        named = [survey.named(each) for each in sizes]
        ranges = dict(zip(survey.ranges, part, strict=True))
        leaves = {
            name: self.make.leaf("dimension", number)  # as `_there` reads them
            for number, (name, (low, high)) in enumerate(ranges.items())
            if low < high
        }
        formulas = Formulas(self.make, leaves, named, complete)
        vectors = list(zip(*(run.numbers for run in runs if isinstance(run, Run)), strict=True))
        formulas.learn(vectors)
        nodes = [formulas.of(vector) for vector in vectors]
        if missing := next((v for v, node in zip(vectors, nodes, strict=True) if node is None), None):
            shown = ", ".join(map(str, missing[:4]))
            for aspect in ASPECTS:
                unsettled.leave(aspect, f"no formula was found for a number of a launch: {shown}, …")
            return unsettled
        dimensions = {leaf: ranges[name] for name, leaf in leaves.items()}
        known = [node for node in nodes if node is not None]
        settled = settle(self._scenes(first, known, dimensions), self.deadline)
        for number, placed, place in settled.suspects:
            there = _there(survey, part, place.sizes)
            survey.run([there])
            run = survey.runs[there]
            if isinstance(run, Run) and run.key == first.key:
                scenes = self._scenes(run)
                at = scenes.launches[number].placed
                same = next(p for p in at if p.access is placed.access)
                self._require(outside(scenes, number, same, place.leaves), survey, there)
        return settled

    # ------------------------------------------------------------------ scenes

    def _follow(self, kernel: str) -> Followed:
        if kernel not in self._followed:
            name, text = self.texts.get(kernel, (kernel, ""))
            try:
                parsed = parse(text)
                accesses = Walk(parsed, self.make).run()
                names = [each.lstrip("%") for each, _ in parsed.parameters]
                self._followed[kernel] = Followed(name, accesses, names)
            except Unparsed as why:
                self._followed[kernel] = Followed(name, unknown=f"`{name}` cannot be followed: {why}")
            except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
                unknown = f"`{name}` cannot be followed: {type(error).__name__}"
                self._followed[kernel] = Followed(name, unknown=unknown)
        return self._followed[kernel]

    def _scenes(
        self,
        run: Run,
        nodes: Sequence[Node] = (),
        dimensions: Mapping[Node, tuple[int, int]] | None = None,
    ) -> Scenes:
        """Puts the numbers of a run, or formulas for them, into its kernels' accesses."""
        given: Iterator[Node] = iter(nodes or [self.make.constant(each) for each in run.numbers])
        sizes = [next(given) for _ in run.bytes]
        scenes, names, unknown = [], {}, ""
        for number, launch in enumerate(run.launches):
            followed = self._follow(launch.kernel)
            grid = [next(given) for _ in range(3)]
            arguments = _arguments(launch, sizes, given)
            if not followed.unknown and len(launch.arguments) != len(followed.parameters):
                followed = replace(
                    followed, accesses=(), unknown=f"`{followed.name}` has arguments of another kind"
                )
            unknown = unknown or followed.unknown
            key = (launch.kernel, *grid, *_renumbered(arguments))
            scenes.append(
                scene_of(self.make, followed.name, followed.accesses, arguments, grid, dimensions or {}, key)
            )
            names[number] = followed.parameters
        outputs = [_output(output, given) for output in run.outputs]
        wanted = [output for output in outputs if output.storage in run.unwritten]
        return Scenes(scenes, wanted, names, unknown)


def _there(survey: Survey, part: Part, sizes: Mapping[Node, int]) -> Sizes:
    """Returns all sizes of a call, where those of some dimensions are given."""
    given = {leaf.number: size for leaf, size in sizes.items()}
    return tuple(given.get(number, low) for number, (low, _) in enumerate(part))


def _renumbered(arguments: Mapping[int, Node | Target]) -> Iterator[object]:
    """Yields arguments with storages numbered as they come: equal for launches that differ in storages only."""
    numbers: dict[int, int] = {}
    for position, value in arguments.items():
        if isinstance(value, Target):
            number = numbers.setdefault(value.storage, len(numbers))
            yield from (position, number, value.start, value.bytes)
        else:
            yield from (position, value)


def _arguments(launch: Launch, sizes: Sequence[Node], given: Iterator[Node]) -> dict[int, Node | Target]:
    found: dict[int, Node | Target] = {}
    for number, argument in enumerate(launch.arguments):
        if isinstance(argument, Pointed):
            found[number] = Target(argument.storage, next(given), sizes[argument.storage])
        elif argument is not None:
            found[number] = next(given)
    return found


def _output(output: Output, given: Iterator[Node]) -> Whole:
    start = next(given)
    shape = tuple(next(given) for _ in output.shape)
    strides = tuple(next(given) for _ in output.strides)
    return Whole(output.name, output.storage, start, output.size, shape, strides)


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
