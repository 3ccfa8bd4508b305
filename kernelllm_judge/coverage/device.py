"""Collects how the decisions of a candidate's kernels fell in Triton's interpreter, as its worker reports them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_SITES = 512
"""Sites in a report…"""
MOST_PAIRS = 256
"""…and pairs of operands that are kept of each…"""
MOST_SHOWN = 4
"""…and probes at which it fell otherwise."""

KINDS: Mapping[str, int] = {
    **dict.fromkeys(
        ("==", "!=", "<", "<=", ">", ">=", "max", "min", "low", "high", "cast", "step", "sign"), 0
    ),
    **dict.fromkeys(("and", "or", "xor"), 1),
    **dict.fromkeys(("where", "if"), 2),
}
"""What decides, each with its rank: what has a lower one decides what the others do."""

_ITSELF = " itself"

NEVER: Mapping[tuple[str, bool], str] = {
    ("max", True): "never took its first argument",
    ("max", False): "never took its second argument",
    ("min", True): "never took its second argument",
    ("min", False): "never took its first argument",
    ("low", True): "never met its lower bound",
    ("high", True): "never met its upper bound",
    ("low", False): "always met its lower bound",
    ("high", False): "always met its upper bound",
    ("cast", True): "was never given a value that it loses",
    ("step", True): "never gave anything but 0",
    ("step", False): "never gave 0",
    ("sign", True): "was never given a negative number",
    ("sign", False): "was only given negative numbers",
    ("where", True): "never took its first choice",
    ("where", False): "never took its second choice",
}
"""What was not seen, by the kind of a site and the outcome; of others it "was never true" or "false"."""

Place = tuple[int, int, int]
"""A line, and the first and the last column; -1 where it ends in another line."""


def quoted(place: Place, source: str) -> str:
    """Returns what stands in a place: ``line 14: `x > 1e9```."""
    line, start, end = place
    lines = source.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    shown = (text[start:end] if end > start else text).strip()[:120]
    return f"line {line}: `{shown}`"


@dataclass
class Site:
    """One decision in a kernel, and what was seen of it."""

    name: list[Any]
    """What identifies it to the worker."""
    places: tuple[Place, ...]
    """The innermost first."""
    kind: str
    itself: bool
    """Whether a value is compared with itself or with infinity: so NaN and infinities are found."""
    given: bool
    """Whether it depends on scalar arguments alone."""
    whole: bool
    """Whether it depends on integers alone, of what is loaded."""
    decided: bool
    """Whether integers are compared that are loaded or counted, or it is made of such decisions."""
    threshold: float | None
    yes: bool = False
    no: bool = False
    pairs: list[tuple[Any, float, float]] = field(default_factory=list)
    """Operands that lay near each other, with the probe at which they did."""
    late: bool | None = None
    """The outcome that the first calls did not have; None where they had either."""
    shown: list[Any] = field(default_factory=list)
    """Probes at which it was had, as long as it is not known whether it made a difference there."""
    vain: dict[Any, bool] = field(default_factory=dict)
    """Probes at which it made none, each with whether others would have shown there."""

    @property
    def rank(self) -> int:
        """The rank of its kind."""
        return KINDS[self.kind]

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of its places."""
        return tuple(place[0] for place in self.places)

    @property
    def line(self) -> int:
        """The line of the decision itself."""
        return self.places[0][0]

    @property
    def constant(self) -> bool:
        """Whether its operands were the same in all calls, so that they are no variables of the candidate."""
        return len({pair[1:] for pair in self.pairs}) <= 1

    @property
    def open(self) -> bool:
        """Whether it was reached, and one outcome was not seen."""
        if self.kind == "cast":
            return self.no and not self.yes
        return self.yes != self.no

    @property
    def upwards(self) -> bool:
        """Whether the outcome that was not seen takes a larger first operand."""
        return (self.kind in (">", ">=", "max", "min", "high", "cast")) != self.yes

    def describe(self, source: str) -> str:
        """Says what was not seen: ``line 14: `x > 1e9` was never true``."""
        missing = not self.yes
        never = NEVER.get((self.kind, missing), f"was never {'true' if missing else 'false'}")
        return f"{quoted(self.places[0], source)} {never}"


class Sites:
    """All sites of one candidate."""

    def __init__(self) -> None:
        """Nothing is seen yet."""
        self._found: dict[tuple[Any, ...], Site] = {}

    def see(self, reported: Any, probe: Any, *, plain: bool = True) -> None:
        """Adds what a worker reports of a call.

        Args:
            reported: the report.
            probe: where the call was made.
            plain: whether either outcome counts at such a probe, also if it makes no difference there.

        Raises:
            ValueError: it is no valid report.
        """
        if not isinstance(reported, list) or len(reported) > MOST_SITES:
            raise ValueError("no list of sites")
        for each in reported:
            site, key = _read(each)
            known = self._found.setdefault(key, site)
            if known is site:
                known.late = not site.yes if site.open else None
            elif known.late is not None and (site.yes if known.late else site.no):
                if plain:
                    known.late = None
                elif len(known.shown) < MOST_SHOWN and probe not in [*known.shown, *known.vain]:
                    known.shown.append(probe)
            known.yes, known.no = known.yes or site.yes, known.no or site.no
            near = each["near"]
            if near is not None and len(known.pairs) < MOST_PAIRS:
                known.pairs.append((probe, *near))

    def doubtful(self) -> list[Site]:
        """Returns the sites of which one outcome was had where it may have made no difference."""
        found = (site for site in self._found.values() if site.shown and site.late is not None)
        return [site for site in found if site.rank < 2 and not (site.given or site.itself)]

    def open(self, *, nonfinite: bool) -> list[Site]:
        """Returns the sites of which one outcome was not seen; of those in one line only those of the lowest rank."""
        found = [site for site in self._found.values() if site.open and not self._idle(site, nonfinite)]
        least: dict[tuple[int, ...], int] = {}
        for site in found:
            least[site.lines] = min(site.rank, least.get(site.lines, site.rank))
        return sorted((site for site in found if site.rank == least[site.lines]), key=lambda site: site.rank)

    def beside(self, site: Site) -> list[tuple[Any, float, float]]:
        """Returns operands that lay near each other, of other sites in the same line."""
        return [p for other in self._found.values() if other.line == site.line for p in other.pairs]

    def _idle(self, site: Site, nonfinite: bool) -> bool:
        """Whether the other outcome makes no difference, or nothing in a call can change it."""
        if site.itself and not nonfinite:
            return True
        if site.given:
            return site.constant
        return False


def _read(each: Any) -> tuple[Site, tuple[Any, ...]]:
    name = each.get("site") if isinstance(each, dict) else None
    if not isinstance(name, list) or len(name) != 4 or not isinstance(name[0], str):
        raise ValueError("no site")
    kernel, places, kind, threshold = name
    near, flags = each.get("near"), [each.get(key) for key in ("given", "whole", "decided", "yes", "no")]
    own = kind.removesuffix(_ITSELF) if isinstance(kind, str) else ""
    if own not in KINDS or not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("no decision")
    if not isinstance(places, list) or not 0 < len(places) <= 8 or not all(map(is_place, places)):
        raise ValueError("no places")
    if near is not None and not (isinstance(near, list) and len(near) == 2 and all(map(_is_number, near))):
        raise ValueError("no operands")
    if threshold is not None and not _is_number(threshold):
        raise ValueError("no threshold")
    where = tuple((line, start, end) for line, start, end in places)
    given, whole, decided, yes, no = flags
    site = Site(name, where, own, own != kind, given, whole, decided, threshold, yes, no)
    return site, (kernel, where, kind, threshold)


def is_place(place: Any) -> bool:
    """Whether a part of a worker's report is a place in a source."""
    return isinstance(place, list) and len(place) == 3 and all(type(number) is int for number in place)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
