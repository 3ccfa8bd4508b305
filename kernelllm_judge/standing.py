"""Says whether a verdict that was given earlier still stands: what has changed in the judge since, and on which side.

Every rule has a version, and so has each part of the judge that serves several rules. A verdict names the versions that it was
given under. A change that makes a rule stricter concerns acceptances, one that makes it looser concerns what that rule
rejected; one for Triton's interpreter only concerns no verdict of a GPU. Standard library only: it is asked about every
stored verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelllm_judge.core.records import Stage, Verdict

FIRST_POLICY = 32
"""The judge's rules as a whole had this number when each rule got a version of its own: version 1 of all of them."""

PARTS: Mapping[str, tuple[Stage, ...]] = {
    "bounds": ("correctness", "timing"),
    "interpreter": ("load", "run", "correctness"),
    "timing": ("timing",),
}
"""What serves several rules, with the stages of the rejections that rest on it: reference outputs and the errors that are
allowed; what Triton's interpreter does and checks; how speed is measured."""


NO_FAULT = frozenset(
    [
        *(
            "static check",
            "supports",
            "state kept",
            "decisions",
            "operations",
            "launches",
            "decoy",
            "torch's share",
            "memory held",
        ),
        *("device time", "clocks", "roofline", "speed"),
    ]
)
"""Rules of what a kernel may do and must gain. A kernel that breaks no other gives no wrong result."""


@dataclass(frozen=True)
class Change:
    """One change of what is accepted."""

    name: str
    """Of the rule, or of one of ``PARTS``."""
    version: int
    """That it has since: one more than before; 1 for a new rule."""
    moves: Literal["stricter", "looser"]
    """What does both is two changes."""
    why: str
    """What is judged otherwise, in a few words that follow a colon."""
    where: Literal["any", "cpu", "cuda"] = "any"
    """Whose verdicts it concerns: those of Triton's interpreter (``cpu``), those of a GPU, or both."""


CHANGES: tuple[Change, ...] = (
    Change("state kept", 1, "stricter", "what a call leaves behind is looked for when it has run"),
    Change("static check", 2, "looser", "state is looked for when a call has run"),
    Change("decisions", 1, "stricter", "what no probe ran does not ship"),
    Change("surroundings", 2, "stricter", "every state in which kernels run is tried"),
    Change("stress", 2, "stricter", "all values are run where outputs depend on single elements"),
    Change("interpreter", 2, "looser", "its own errors are no rejections, and integers wrap", where="cpu"),
    Change(
        "static check", 3, "looser", "arithmetic of `operator`, `itertools`, `numbers` and tensor descriptors"
    ),
    Change("nonfinite", 2, "looser", "infinities that only PyTorch's shortcut loses"),
    Change("alignment", 2, "looser", "what needs aligned tensors is judged for these"),
    Change(
        "bounds",
        2,
        "stricter",
        "root mean squares of errors are held to three roundings in each row, column and all",
    ),
    Change(
        "bounds",
        3,
        "looser",
        "what honest evaluations at inputs with other last digits may be off by is allowed",
    ),
    Change("addresses", 1, "stricter", "addresses are followed in all programs, at real sizes"),
    Change("stress", 3, "looser", "rows of all kinds are mixed in a few probes", where="cuda"),
    Change("nonfinite", 3, "looser", "NaN and infinities come in rows of one probe", where="cuda"),
    Change("attributes", 2, "looser", "values across 1 and of the other sign alone", where="cuda"),
    Change(
        "decisions", 2, "stricter", "conjunctions, and what is computed of sizes, are seen either way, too"
    ),
    Change("gradients", 2, "stricter", "gradients of outputs are small, large and sparse as well"),
    Change("stress", 4, "stricter", "rows are masked with the least numbers, in whole and in part"),
    Change("operations", 1, "stricter", "what has no part in any output at any probe does not ship"),
    Change("weights", 2, "stricter", "weights are small and large as well"),
    Change("decisions", 3, "stricter", "how many programs a launch has is followed along sizes"),
    Change("addresses", 2, "stricter", "launches are followed at the first sizes along a domain's edges"),
    Change("stress", 5, "looser", "rows are masked where the original computes no infinities of them"),
    Change("operations", 2, "looser", "an index may count from the end where none is below 0"),
    Change("operations", 3, "stricter", "what becomes a block from a number is followed"),
    Change(
        "stress",
        6,
        "looser",
        "rows are masked where the original does not multiply what they are masked with",
    ),
    Change("torch's share", 2, "looser", "topk is a library's work where the original leaves it to torch"),
    Change("operations", 4, "stricter", "what an atomic addition takes is used"),
    Change(
        "operations",
        5,
        "looser",
        "a choice that bounds settle has one branch, and ends leave an index loaded",
    ),
    Change("surroundings", 3, "stricter", "what arguments hold besides tensors stays as it was"),
    Change("nonfinite", 4, "stricter", "NaN and infinities come in one input alone, too"),
    Change("nonfinite", 5, "looser", "NaN that only attention on the CPU turns into 0", where="cpu"),
)
"""All changes since ``FIRST_POLICY``, the oldest first. Whoever changes what a rule accepts adds a line, and nobody alters one."""


@dataclass(frozen=True)
class Standing:
    """Whether a verdict stands, and why: a sentence's end, after "because"."""

    stands: bool
    reason: str


def policy(changes: Sequence[Change] = CHANGES) -> str:
    """Returns the number of the judge's rules as a whole, for people; no verdict depends on it."""
    return str(FIRST_POLICY + len(changes))


def versions(names: Iterable[str], changes: Sequence[Change] = CHANGES) -> dict[str, int]:
    """Returns the versions of these rules, and of all parts."""
    latest = {change.name: change.version for change in changes}
    return {name: latest.get(name, 1) for name in (*names, *PARTS)}


def standing(verdict: Verdict, changes: Sequence[Change] = CHANGES) -> Standing:
    """Says whether a verdict stands under the rules of today.

    Args:
        verdict: as it was given.
        changes: all changes of the rules, the oldest first.
    """
    given = verdict.environment.policy
    if not verdict.versions and given != str(FIRST_POLICY):
        return Standing(
            False, f"it was given under policy {given}, before each rule had a version of its own"
        )
    # Before rules had versions a verdict named none: it passed the first one of each.
    since = [c for c in changes if c.version > verdict.versions.get(c.name, 0)]
    for change in _here(since, verdict):
        if verdict.lacks:
            return Standing(False, f"it was undecided, and {change.name} has changed: {change.why}")
        concerned = verdict.correct if change.moves == "stricter" else _rejected_by(verdict, change.name)
        if concerned and not (change.moves == "stricter" and change.name == verdict.rule):
            what = "accepted" if verdict.accepted else "rejected"
            return Standing(
                False, f"it was {what}, and {change.name} has become {change.moves}: {change.why}"
            )
    return Standing(True, "nothing that it rests on has changed on the side that concerns it")


def newly_refused(verdict: Verdict, before: str, changes: Sequence[Change] = CHANGES) -> str:
    """Says why a kernel is refused that an earlier policy accepted, where it gives no wrong result; empty for any other.

    Args:
        verdict: of today.
        before: number of the policy under which it was accepted; empty if it is not known that it was.
        changes: all changes of the rules, the oldest first.
    """
    if verdict.verdict != "rejected" or verdict.rule not in NO_FAULT or not before.isdecimal():
        return ""
    if int(before) < FIRST_POLICY:
        return f"policy {before} accepted it, and policy {policy(changes)} does not"
    for change in _here(changes[int(before) - FIRST_POLICY :], verdict):
        if change.moves == "stricter" and _rejected_by(verdict, change.name):
            return f"policy {before} accepted it, and {change.name} has become stricter since: {change.why}"
    return ""


def _here(changes: Iterable[Change], verdict: Verdict) -> list[Change]:
    """The changes that concern verdicts of the same device."""
    return [change for change in changes if change.where in ("any", verdict.environment.device)]


def _rejected_by(verdict: Verdict, name: str) -> bool:
    if verdict.verdict != "rejected":
        return False
    return verdict.rule == name or verdict.stage in PARTS.get(name, ())
