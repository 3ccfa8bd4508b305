"""Sees to it that nothing ships that no probe ran: every decision in a candidate's Python code was seen either way.

What the probes of all rules did not see is sought at other sizes: the worker makes many calls with launches left out, and where
one decides otherwise, a probe there is run and compared. What is still not seen then is replaced: the original runs there.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from kernelllm_judge.core.kernel_module import DIGEST_LINE, stamped
from kernelllm_judge.core.records import Check, TensorSpec
from kernelllm_judge.coverage.decisions import Decision as Decided, Outcome, find_decisions, is_device
from kernelllm_judge.coverage.fencing import fenced
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.call import Judging, decided, upload
from kernelllm_judge.truth.probes import Probe, elements

RULE = "decisions"

SECONDS = 2.0
"""For how long sizes are tried at which a candidate may decide otherwise."""

MOST_PROBES = 16
"""Probes that are run at such sizes, at most."""

SMALL = 256
"""Sizes from the smallest on that are tried."""

MOST_BESIDE = 12
"""Probes beside changes, at most; of more, randomly chosen ones."""

MOST_BENT = 12
"""Sizes at which a number that is passed to a launch may leave a straight line, so that each of them counts as a change."""

Missing = dict[int, set[Outcome]]
"""Outcomes that no compared call had, by the number of a decision."""


def missing(source: str, findings: Findings) -> Missing:
    """Returns what is still not seen of a candidate's decisions."""
    lacking = {}
    for decision in find_decisions(source):
        seen = findings.decided.get(decision.number, set())
        if not seen and decision.kind != "handler":
            continue  # never reached, so that it lies behind another one; or it was no truth value
        if left := set(decision.outcomes) - seen:
            lacking[decision.number] = left
    return lacking


def probes_for(source: str, lacking: Missing, judging: Judging, plan: Plan) -> list[Probe]:
    """Returns probes of a case at sizes at which a candidate decides otherwise, or passes other numbers to its launches.

    First as few as show all outcomes that were not seen; then both sides of where an outcome changes, and where a number
    leaves the line on which it was; then sizes beside the numbers with which its kernels compare.
    """
    policy = judging.policy
    most = policy.gpu_elements if judging.on_gpu else policy.cpu_elements
    tree = ast.parse(source)
    sizes = list(_sizes(_numbers(tree), plan, most, SMALL))
    template = upload(judging, judging.references.prepare(plan.main[0])).arguments
    calls = [_call(plan, template, each) for each in sizes]
    reply = judging.worker.request("decide", calls=calls, seconds=SECONDS)
    found = list(zip(sizes, _tried(reply), strict=False))
    chosen: list[dict[str, int]] = []
    left = {(number, outcome) for number, outcomes in lacking.items() for outcome in outcomes}
    while left and len(chosen) < MOST_PROBES:
        best, tried = max(found, key=lambda pair: len(left & pair[1].outcomes), default=({}, None))
        if tried is None or not left & tried.outcomes:
            break
        chosen.append(best)
        left -= tried.outcomes
    compared = [
        node
        for each in ast.walk(tree)
        if is_device(each)
        for node in ast.walk(each)
        if isinstance(node, ast.Compare)
    ]
    on_device = list(_sizes(set().union(*map(_numbers, compared)), plan, most)) if compared else []
    for beside in (_changes(found, plan), on_device):
        others = [each for each in beside if each not in chosen]
        chosen += judging.rng.sample(others, min(MOST_BESIDE, len(others)))
    return [replace(plan.main[0], sizes=tuple(each.items()), rule=RULE) for each in chosen]


@dataclass(frozen=True)
class _Tried:
    """What a call at some sizes did."""

    outcomes: frozenset[tuple[int, Outcome]]
    passed: tuple[float, ...]
    """The numbers that its launches got, one after the other."""


def _tried(reply: Mapping[str, Any]) -> Iterator[_Tried]:
    """Reads a worker's reply to ``decide``. Raises ``WorkerDied`` if it is no valid report."""
    calls = reply.get("calls")
    for each in calls if isinstance(calls, list) else []:
        passed = each.get("passed") if isinstance(each, dict) else None
        if not (isinstance(passed, list) and all(isinstance(launch, list) for launch in passed)):
            raise WorkerDied("its reply to `decide` is not a valid report")
        outcomes = frozenset((number, outcome) for number, outcome, _ in decided(each.get("decided")))
        yield _Tried(outcomes, tuple(itertools.chain(*passed)))


def _changes(found: Sequence[tuple[dict[str, int], _Tried]], plan: Plan) -> list[dict[str, int]]:
    """Returns the sizes at both sides of where one more step along a dimension changes what is decided, or bends a number."""
    changes = []
    for name in plan.ranges:
        lines: dict[tuple[int, ...], list[tuple[dict[str, int], _Tried]]] = {}
        for sizes, tried in found:
            lines.setdefault(tuple(size for other, size in sizes.items() if other != name), []).append(
                (sizes, tried)
            )
        for line in lines.values():
            line.sort(key=lambda pair: pair[0][name])
            for (before, a), (after, b) in itertools.pairwise(line):
                if a.outcomes != b.outcomes and after[name] == before[name] + 1:
                    changes += [before, after]
            for numbers in zip(*(tried.passed for _, tried in line), strict=False):
                points = [(sizes[name], number) for (sizes, _), number in zip(line, numbers, strict=True)]
                triples = [*zip(line[1:], points, points[1:], points[2:], strict=False)]
                bent = [
                    sizes
                    for (sizes, _), (a, x), (b, y), (c, z) in triples
                    if (y - x) * (c - b) != (z - y) * (b - a)
                ]
                if len(bent) > MOST_BENT:  # a number of blocks, for example, which grows with sizes
                    bent = [sizes for (sizes, _), (_, x), (_, y), (_, z) in triples if (y - x) * (z - y) < 0]
                changes += bent if len(bent) <= MOST_BENT else []
    return [each for number, each in enumerate(changes) if each not in changes[:number]]


def refuse(source: str, lacking: Missing, judging: Judging, plans: Sequence[Plan]) -> None:
    """Ends the judging where decisions were seen one way only. ``Findings.fence`` is then what may be judged in its place.

    Raises:
        Decision: there are such decisions.
    """
    decisions = {each.number: each for each in find_decisions(source)}
    broken = "; ".join(decisions[number].describe(left) for number, left in sorted(lacking.items()))
    if kept := _unfenceable(source, lacking, judging, plans, decisions):
        reason = f"no probe took a decision the other way, and the original cannot run there, because {kept}: {broken}"
        raise Decision("inconclusive", "correctness", reason)
    seen = {number: judging.findings.decided.get(number, set()) for number in lacking}
    text = fenced(source, seen)
    judging.findings.fence = stamped(text) if DIGEST_LINE in source else text
    check = Check(
        "decisions seen either way", False, None, None, f"no probe took a decision the other way: {broken}"
    )
    judging.findings.record(RULE, check)


def _unfenceable(
    source: str, lacking: Missing, judging: Judging, plans: Sequence[Plan], decisions: Mapping[int, Decided]
) -> str:
    """Says why the original cannot run in place of what was not seen; empty where it can."""
    lines = [decisions[number].line for number in lacking]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and any(_lies_in(node.body, line) for line in lines):
            return "an exception is caught there"
    # There it is an error in words; what the domain fixes, such as a type, never comes to that.
    decided = [each for number in lacking if not (each := decisions[number]).text.startswith("isinstance(")]
    if any(each.number in judging.findings.in_backward for each in decided):
        return "it is in a backward pass"
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    backward = [node for node in functions if "backward" in node.name]
    if any(_lies_in(node.body, each.line) for node in backward for each in decided):
        return "it is in a backward pass"
    if any(judging.references.prepare(plan.main[0]).updates.names for plan in plans):
        return "buffers may have been updated before"
    return ""


def _lies_in(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _call(plan: Plan, template: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Returns the arguments of a call at other sizes, as the worker reads them."""
    specs = plan.case.domain.inputs
    arguments = dict(template)
    for name, value in template.items():
        spec = specs.get(name)
        if isinstance(value, dict) and isinstance(spec, TensorSpec):
            shape = [sizes[size] if isinstance(size, str) else size for size in spec.shape]
            arguments[name] = {"empty": shape, "of": spec.dtype}
    return arguments


def _sizes(numbers: Set[int], plan: Plan, most: int, small: int = 0) -> Iterator[dict[str, int]]:
    """Yields sizes inside the ranges that a candidate supports, and no larger than probes are.

    For each dimension, with the others at their smallest, at the main sizes and at larger ones: what lies beside the
    numbers; and as far as ``small`` sizes are wanted, these, the ends, and what lies beside powers of two.
    """
    low = {name: ends[0] for name, ends in plan.ranges.items()}
    main = dict(plan.main[0].sizes)
    beside = {number + step for number in numbers for step in (-1, 0, 1)}
    larger = {name: min(2 * main[name] + 1, ends[1]) for name, ends in plan.ranges.items()}
    done = set()
    for others, name in itertools.product((low, main, larger), plan.ranges):
        first, last = plan.ranges[name]
        factor = elements(plan.case.domain, {**others, name: 1})
        wanted = [*beside, *(number // factor + step for number in beside for step in (0, 1))]
        if small:
            wanted += [first, last, *range(first, min(last, first + small) + 1)]
            wanted += [(1 << power) + step for power in range(last.bit_length()) for step in (-1, 0, 1)]
        for size in dict.fromkeys(each for each in wanted if first <= each <= last):
            sizes = {**others, name: size}
            if (key := tuple(sizes.items())) not in done and elements(plan.case.domain, sizes) <= most:
                done.add(key)
                yield sizes


def _numbers(tree: ast.AST) -> set[int]:
    """Returns the whole numbers in a source or a part of it, and the products of two that are written as such."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int(number)) if number < 1 << 40:
                found.add(number)
            case ast.BinOp(left=ast.Constant(value=int(a)), op=ast.Mult(), right=ast.Constant(value=int(b))):
                found.add(a * b)
            case ast.BinOp(
                left=ast.Constant(value=int(a)), op=ast.LShift(), right=ast.Constant(value=int(b))
            ) if b < 40:
                found.add(a << b)
    return found
