"""Shows that an access takes each element of a tensor once: its offset is a number whose digits are the variables of the access.

A row times its length plus a column is such a number, and so is a program times its block plus a lane. Digits are merged, split and
cut where the kernel does so, until each place counts as many elements as all lower ones together. This holds for every size at once,
which a solver of integer arithmetic seldom finds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations

from kernelllm_judge.addresses.polynomials import ONE, Polynomial, Signs, Variable, quotient

ROUNDS = 64
"""Changes of the digits, at most."""

DEPTH = 5
"""Conditions that are put together, at most."""


@dataclass(frozen=True)
class Written:
    """How an access takes elements."""

    key: tuple[object, ...]
    """Equal for accesses that take the same elements in the same programs, lane by lane."""
    start: Polynomial
    """The first element."""
    count: Polynomial | None
    """How many elements it takes, one after the other without a gap; None if there may be gaps."""


@dataclass
class Digits:
    """The digits of one access, while they change."""

    offset: Polynomial
    guards: list[Polynomial | None]
    """What must be 0 or more; None: a condition of another form."""
    extents: dict[Variable, Polynomial | None]
    """How many values each digit has, from 0 on; None: no end is known."""
    programs: set[Variable]
    """Digits that tell programs apart."""
    signs: Signs
    steps: list[object] = field(default_factory=list)

    def change(self) -> None:
        """Changes the digits as far as that goes."""
        self._replace({})
        for _ in range(ROUNDS):
            if not (self._cut() or self._split() or self._merge()):
                break

    def implies(self, each: Polynomial, left: int = DEPTH) -> bool:
        """Whether a polynomial is 0 or more wherever all conditions hold."""
        if self.signs.not_negative(each):
            return True
        if not left:
            return False
        each = self.signs.without_quotients(each)
        for guard in self.guards:
            for variable in guard.outer & each.outer if guard else ():
                assert guard is not None
                factor, per = each.factor(variable), guard.factor(variable)
                whole, rest = factor.divided(per) if factor and per else (Polynomial(), ONE)
                # It is ``whole`` times something that is 0 or more, and what is left.
                if not rest.terms and self.signs.not_negative(whole):
                    without = replace(self, guards=[g for g in self.guards if g is not guard])
                    if without.implies(each - whole * guard, left - 1):
                        return True
        for variable in sorted(each.outer, key=repr):
            extent, factor = self.extents.get(variable), each.factor(variable)
            if factor is None:
                continue
            kind, down = variable[0], factor * Polynomial.constant(-1)
            if kind in ("min", "max") and self.signs.not_negative(down if kind == "min" else factor):
                # It is no more, or no less, than each of the two.
                forms = [each + factor * (part - Polynomial.variable(variable)) for part in variable[1:3]]
                return any(self.implies(form, left - 1) for form in forms)
            if kind == "rem" and self.signs.divides(variable):
                extent = variable[2]  # whatever it is the remainder of
            elif variable not in self.extents:
                continue
            lowest = each - factor * Polynomial.variable(variable)
            if extent is not None and self.signs.not_negative(down):
                lowest = lowest + factor * (extent - ONE)
            elif not self.signs.not_negative(factor):
                continue
            return self.implies(lowest, left)
        return False

    def written(self) -> Written | None:
        """Returns how elements are taken; None where that is not found out, or programs may take the same ones."""
        start, idle = self.offset, list[Variable]()
        factors: dict[Variable, Polynomial] = {}
        for variable in self.extents:
            factor = self.offset.factor(variable)
            if factor is None:
                return None
            if factor.terms:
                factors[variable] = factor
                start = start - factor * Polynomial.variable(variable)
            elif variable in self.programs and not self._is_one(variable):
                return None
            else:
                idle.append(variable)
        if any(variable in self.extents for variable in start.variables):
            return None
        span: Polynomial | None = ONE
        ends = [self.extents[variable] for variable in idle]
        dense = all(end is not None and self.signs.not_negative(end - ONE) for end in ends)
        left = dict(factors)
        while left:
            if span is None:
                return None
            if not self.programs & set(left) and not any(f.divided(span)[1].terms for f in left.values()):
                dense = False  # whatever these are, the rest of a division by ``span`` tells programs apart
                break
            exact = [v for v in left if left[v] == span]
            after = exact or [v for v in left if self.signs.not_negative(left[v] - span)]
            if not after:
                return None
            dense &= bool(exact)
            extent, factor = self.extents[after[0]], left.pop(after[0])
            span = None if extent is None else factor * extent
        pending = [g for g in self.guards if g is None or not replace(self, guards=[]).implies(g)]
        key = (*self.steps, self.offset, *sorted(map(repr, self.extents.items())))
        return Written(key, start, span if dense and not pending else None)

    def _is_one(self, variable: Variable) -> bool:
        extent = self.extents[variable]
        return extent is not None and self.signs.not_negative(ONE - extent)

    def _cut(self) -> bool:
        """Applies a condition that bounds one digit."""
        for number, guard in enumerate(self.guards):
            if guard is None:
                continue
            inside = [variable for variable in self.extents if variable in guard.variables]
            if len(inside) != 1:
                continue
            variable = inside[0]
            factor = guard.factor(variable)
            if factor is None or factor.number is None or factor.number >= 0:
                continue
            rest = guard - factor * Polynomial.variable(variable)
            if not self.signs.not_negative(rest):
                continue
            bound = quotient("div", rest, Polynomial.constant(-factor.number)) + ONE
            extent = self.extents[variable]
            if extent is None or self.signs.not_negative(extent - bound):
                self.extents[variable] = bound
                self.steps.append((variable, bound))
            elif not self.signs.not_negative(bound - extent):
                continue
            del self.guards[number]
            return True
        return False

    def _everywhere(self) -> list[Polynomial]:
        """All polynomials in which digits occur, those inside of quotients and remainders apart."""
        found = [self.offset, *(guard for guard in self.guards if guard is not None)]
        for each in tuple(found):
            found += [part for op in each.operations() for part in op if isinstance(part, Polynomial)]
        return found

    def _merge(self) -> bool:
        """Makes one digit of two that occur only as one number."""
        everywhere = self._everywhere()
        for high, low in permutations(self.extents, 2):
            extent = self.extents[low]
            if extent is None:
                continue
            used = False
            for each in everywhere:
                a, b = each.factor(high), each.factor(low)
                top = {high, low} & each.outer
                if not top:
                    continue
                used = True
                if a is None or b is None:  # inside of an operation as well: that is looked at on its own
                    a, b = (_outer_factor(each, v) for v in (high, low))
                if a is None or b is None or a != b * extent:
                    break
            else:
                if used:
                    self._put_together(high, low, extent)
                    return True
        return False

    def _put_together(self, high: Variable, low: Variable, extent: Polynomial) -> None:
        merged: Variable = ("digit", high, low)
        more = self.extents.pop(high)
        del self.extents[low]
        self.extents[merged] = None if more is None else more * extent
        if {high, low} & self.programs:
            # A lower digit of a program's own lanes tells no programs apart, but neither does it hide them.
            self.programs = (self.programs - {high, low}) | {merged}
        self._replace({high: Polynomial(), low: Polynomial.variable(merged)})
        self.steps.append(merged)

    def _split(self) -> bool:
        """Makes two digits of one that the kernel divides."""
        for each in self._everywhere():
            for operation in each.operations():
                if operation[0] not in ("div", "rem"):
                    continue
                _, a, b = operation
                inside = [variable for variable in self.extents if variable in a.variables]
                if len(inside) != 1 or a != Polynomial.variable(inside[0]) or set(self.extents) & b.variables:
                    continue
                extent = self.extents[inside[0]]
                whole, rest = (Polynomial(), ONE) if extent is None else extent.divided(b)
                if rest.terms or not self.signs.not_negative(b - ONE):
                    continue
                high, low = ("high", inside[0], b.terms), ("low", inside[0], b.terms)
                del self.extents[inside[0]]
                self.extents |= {high: whole, low: b}
                if inside[0] in self.programs:
                    self.programs = (self.programs - {inside[0]}) | {high, low}
                self._replace({inside[0]: b * Polynomial.variable(high) + Polynomial.variable(low)})
                self.steps.append((high, low))
                return True
        return False

    def _replace(self, by: dict[Variable, Polynomial]) -> None:
        self.offset = self.offset.replaced(by, self._divided)
        self.guards = [g and g.replaced(by, self._divided) for g in self.guards]

    def _divided(self, kind: str, a: Polynomial, b: Polynomial) -> Polynomial:
        """Returns a quotient or remainder; a last digit below the divisor makes no difference to it."""
        whole, rest = a.divided(b)
        if len(rest.terms) == 1 and whole.terms:
            [(key, number)] = rest.terms
            extent = self.extents.get(key[0]) if len(key) == 1 and number == 1 else None
            if extent is not None and (extent == b or self.signs.not_negative(b - extent)):
                return whole if kind == "div" else rest
        return quotient(kind, a, b)


def _outer_factor(each: Polynomial, variable: Variable) -> Polynomial | None:
    """Returns what a variable is multiplied with outside of all operations; None where that is no number over sizes."""
    found: dict[tuple[Variable, ...], int] = {}
    for key, value in each.terms:
        if variable in key:
            rest = list(key)
            rest.remove(variable)
            if any(isinstance(part, Polynomial) for v in rest for part in v) or variable in rest:
                return None
            found[tuple(rest)] = value
    return Polynomial.of(found)
