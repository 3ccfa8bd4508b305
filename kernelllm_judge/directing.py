"""Seeks inputs, weights and sizes at which the decisions of a candidate's kernels fall the other way.

What decides reports how near its operands came, so that a factor or a shift follows that takes one across the other. Each
direction is an ordinary probe: its outputs are compared, and what it shows of all other decisions counts as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.coverage.device import Site, Sites
from kernelllm_judge.findings import Decision
from kernelllm_judge.plans import Plan
from kernelllm_judge.rules.rule import seed_of
from kernelllm_judge.run.call import Judging, poison, upload
from kernelllm_judge.run.comparison import outputs_pass, updates_pass
from kernelllm_judge.truth.directed import Direction
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe, elements

RULE = "decisions"

MOST_RUNS = 20
"""Probes of one candidate that are run for its kernels' decisions…"""
MOST_TRIES = 48
"""…and that are tried with the original before."""

UNFORCED = frozenset({"cast", "step", "sign"})
"""Kinds of decisions whose outcome cannot be forced."""

FIRST = 4
"""Directions that follow from how near operands came and are tried before those that always are."""

MOST_FACTORS = 8
"""Factors that are tried, each nearer to a threshold than the one before."""

IN_VAIN = 3
"""Probes at which a decision made no difference, until it is taken to make none."""

BEYOND = 1.5
"""How far across a threshold an operand is taken, as a factor."""

COMMON = (
    Direction("equal"),
    Direction("negative share"),
    Direction("one ×", 1e4),
    Direction("rows ×", -1e6),
    Direction("values ×", 1e6),
    Direction("values ×", 1e3, weights=True),
    Direction("rows +", -1e3),
    Direction("values =", 0.0, weights=True),
    Direction("rows =", 0.0),
    Direction("values =", 0.0),
)
"""What is tried at every site."""


@dataclass
class Search:
    """The search for one case of a candidate."""

    plan: Plan
    sites: Sites
    tried: list[Probe] = field(default_factory=list)
    ran: list[Probe] = field(default_factory=list)

    def probes(self) -> Iterator[Probe]:
        """Yields probes, one at a time: each depends on what those before have shown."""
        while len(self.ran) < MOST_RUNS and len(self.tried) < MOST_TRIES:
            known = {replace(probe, seed=0) for probe in self.tried}
            following = (p for p in self._ahead() if replace(p, seed=0) not in known)
            if (probe := next(following, None)) is None:
                return
            self.tried.append(probe)
            yield probe

    def left(self) -> list[Site]:
        """Returns the sites that stay open, without those to which only values lead that the original refuses."""
        return [site for site in self.sites.open(nonfinite=self.plan.nonfinite) if not self._refused(site)]

    def _refused(self, site: Site) -> bool:
        """Whether all values that lead to the other outcome were refused; of a conjunction, all that lead to its parts' others."""
        if not site.whole:
            return False
        basic = [
            other
            for other in self.sites.open(nonfinite=self.plan.nonfinite)
            if other.whole and not other.rank
        ]
        ways = {way for other in ([site] if not site.rank else basic) for way in self._of(other)}
        beyond = [probe for probe in self.tried if probe.directed in ways]
        return bool(beyond) and not any(probe in self.ran for probe in beyond)

    def _ahead(self) -> Iterator[Probe]:
        """Yields the probes for each open site in turn."""
        ways = [self._for(site) for site in self.sites.open(nonfinite=self.plan.nonfinite)]
        for turn in zip_longest(*ways):
            yield from (probe for probe in turn if probe is not None)

    def _for(self, site: Site) -> Iterator[Probe]:
        if site.given:
            yield from map(self._at, self._sizes(site))
        else:
            yield from map(self._towards, dict.fromkeys(self._of(site)))

    def _towards(self, direction: Direction) -> Probe:
        return replace(self._at(self.plan.small), directed=direction)

    def _at(self, sizes: Mapping[str, int]) -> Probe:
        first = self.plan.main[0]
        seed = first.seed + seed_of(RULE) + len(self.tried)
        return replace(first, sizes=tuple(sizes.items()), seed=seed, weights=first.seed, rule=RULE)

    def _sizes(self, site: Site) -> Iterator[dict[str, int]]:
        """Yields sizes at which a scalar argument may be what it is compared with."""
        for probe, a, b in site.pairs[-8:]:
            sizes = dict(probe.sizes)
            for name, (low, high) in self.plan.ranges.items():
                near = [sizes[name] + (b - a), sizes[name] - (b - a)] + ([sizes[name] * b / a] if a else [])
                for number in (round(value) + step for value in near for step in (0, 1, -1)):
                    other = {**self.plan.small, name: number}
                    if low <= number <= high and elements(self.plan.case.domain, other) <= self.plan.most:
                        yield other

    def _of(self, site: Site) -> Iterator[Direction]:
        """Yields directions for one site: first those that follow from how near its operands came."""
        pairs = site.pairs or self.sites.beside(site)
        plain = [pair for pair in pairs if pair[0].directed is None] or pairs
        nearest = sorted(plain, key=lambda pair: abs(pair[1] - pair[2]))[:1]
        known = nearest if site.whole or not site.decided else []
        across = [way for _, a, b in known for way in _across(site, a, b, self._floats())]
        if site.whole:
            yield from across
            return
        yield from across[:FIRST]
        factors = [p for p in self.tried if p.directed and p.directed.way in ("×", "one ×")]
        for probe, a, b in pairs[-6:] if len(factors) < MOST_FACTORS else ():
            if probe.directed and probe.directed.way in ("×", "one ×") and a and 0 < abs(b / a) < math.inf:
                yield replace(probe.directed, amount=_rounded(probe.directed.amount * _beyond(b / a)))
        yield from (*COMMON, *across[FIRST:])

    def _floats(self) -> list[str]:
        specs = self.plan.case.domain.inputs
        return [k for k, v in specs.items() if isinstance(v, TensorSpec) and "float" in v.dtype]


def _across(site: Site, a: float, b: float, inputs: Sequence[str]) -> Iterator[Direction]:
    """Yields directions in which ``a`` may come across ``b``, or ``b`` across ``a`` where that is the constant."""
    swapped = site.threshold is not None and site.threshold == a
    if swapped:
        a, b = b, a
    if site.whole:
        step = 1 if site.upwards != swapped else -1
        values = (b,) if site.kind in ("==", "!=") else (b + step, b + 100 * step, 2 * b - a + step)
        yield from (Direction("values =", value) for value in values)
        yield Direction("values =", values[0], "integers", weights=True)
        return
    equality = site.kind in ("==", "!=")
    if equality:
        yield from (Direction("values =", b), Direction("values =", b, weights=True), Direction("rows =", b))
    gap = _rounded(BEYOND * (b - a))
    factor = b / a if a and b else 0.0
    if factor and math.isfinite(factor):
        far = _rounded(_beyond(factor))
        root = _rounded(math.copysign(abs(far) ** 0.5, far))
        ladder = _rounded(math.copysign(4 * factor if abs(factor) > 1 else factor / 4, factor))
        yield from (Direction("×", far), Direction("rows ×", ladder), Direction("×", far, weights=True))
        yield from (Direction("values ×", ladder), Direction("×", root), Direction("one ×", far))
        for name in inputs if len(inputs) > 1 else ():
            yield from (Direction("×", far, name), Direction("+", gap, name))
        yield Direction("values ×", ladder, weights=True)
    else:
        yield Direction("×", -1.0)
    yield from (Direction("+", gap), Direction("rows +", 2 * gap), Direction("+", gap, weights=True))
    if not equality:
        yield Direction("values =", b)


def _beyond(factor: float) -> float:
    return factor * BEYOND if abs(factor) >= 1 else factor / BEYOND


def _rounded(number: float) -> float:
    return float(f"{number:.4g}") if math.isfinite(number) else 0.0


def doubt(judging: Judging, sites: Sites) -> None:
    """Opens again what fell otherwise where it made no difference: there, the call is right with the other outcome, too.

    If it makes none at several probes that can tell right from wrong, it is taken to make none anywhere.
    """
    for site in sites.doubtful():
        assert site.late is not None
        differs = site.kind in UNFORCED
        for probe in site.shown:
            if differs or sum(site.vain.values()) >= IN_VAIN:
                break
            prepared = judging.references.prepare(probe)
            differs = _would_be_wrong(judging, prepared, site)
            if not differs:
                site.vain[probe] = prepared.trivial is None and probe.rule != "nonfinite"
        site.shown.clear()
        if differs or sum(site.vain.values()) >= IN_VAIN:
            site.late = None
        else:
            site.yes, site.no = site.yes and not site.late, site.no and site.late


def _would_be_wrong(judging: Judging, prepared: PreparedProbe, site: Site) -> bool:
    """Whether a call gives wrong outputs where a decision falls for all elements as it does at other probes."""
    uploaded = upload(judging, prepared)
    for buffer, _ in uploaded.outputs:
        poison(buffer)
    reply = judging.worker.request(
        "run",
        inputs=uploaded.arguments,
        outputs=[description for _, description in uploaded.outputs],
        how="sanitized",  # it may access what it must not
        all_configurations=False,
        sites={"forced": {"site": site.name, "outcome": not site.late}},
    )
    failed = "error" in reply or reply.get("fault") is not None or not reply.get("forced")
    return failed or not (
        outputs_pass(judging, uploaded, prepared) and updates_pass(judging, uploaded, prepared)
    )


ORDERING = ("<", "<=", ">", ">=")

SOUGHT = ("cast", "step", "sign")
"""Kinds of sites of which one outcome may be missing."""


def _must_be_seen(site: Site) -> bool:
    """Whether either outcome of a site must be seen. Others are sought all the same, and what is found is compared.

    NaN is asked by a rule of its own, and a cast that loses nothing anywhere is one that the original has, too. Where
    sizes are only compared, the ends of their ranges were tried. What compares labels and places often guards
    against what cannot be.
    """
    if site.given:
        return site.kind not in ORDERING
    return not (site.itself or site.decided or site.kind in SOUGHT)


def refuse(source: str, left: Sequence[Site]) -> None:
    """Ends the judging where decisions were seen one way only.

    Raises:
        Decision: there are such.
    """
    left = [site for site in left if _must_be_seen(site)]
    if left:
        broken = "; ".join(dict.fromkeys(site.describe(source) for site in left[:3]))
        more = f", and {len(left) - 3} more decisions like this" if len(left) > 3 else ""
        reason = f"{broken}{more}; no input or weight that the original accepts made it so"
        raise Decision("inconclusive", "correctness", reason)
