"""Decides how the whole model runs, and times that beside what people run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.whole.answer import CHOSEN, COMPILE, EAGER, MAX_AUTOTUNE, WayAnswer
from pytest_kernelllm.beside.whole.choices import choices
from pytest_kernelllm.beside.whole.errors import ALLOWED, Reference, reference
from pytest_kernelllm.beside.whole.final import Compared, compared, measured_error
from pytest_kernelllm.beside.whole.select import Selection, Tried
from pytest_kernelllm.beside.whole.stage import Call, Stage, Way
from pytest_kernelllm.core.applies import interpreting

TIMING_S = 30.0
"""Seconds that the last timing takes at most."""
AUTOTUNE = 6.0
"""Times as long as compiling the model that tuning it takes, about."""


@dataclass(frozen=True)
class Terms:
    """What bounds the decision."""

    end: float
    """The monotonic time at which the budget is spent."""
    freeze: bool
    max_autotune: bool
    progress: Callable[[str], None]
    calls: Callable[[str], bool] = lambda part: True
    """Whether the model calls a function with a part of a name."""

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()


@dataclass(frozen=True)
class Decision:
    """How the model runs, and how that compares."""

    way: Way
    call: Call
    tried: tuple[Tried, ...]
    ways: tuple[WayAnswer, ...]
    """The chosen one comes last."""
    reference: Reference
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Baseline:
    """The model under ``torch.compile`` with its defaults, with which everything else is compared."""

    call: Call
    reference: Reference
    allowed: float
    """The largest error of outputs that another way may have."""
    compiling: float
    """Seconds that compiling took."""


def baseline(stage: Stage, progress: Callable[[str], None]) -> Baseline:
    """Compiles the model as people do. Inside ``stage.opened``.

    Raises:
        RankError: ``torch.compile`` fails on the model.
    """
    progress("computing the model in float64")
    exact = reference(stage)
    plain = stage.as_people_do(None)
    begun = time.monotonic()
    progress("compiling the model")
    compiled = measured_error(stage, exact, COMPILE, plain)
    compiling = time.monotonic() - begun
    if compiled.reason:
        raise RankError(f"The model does not run under torch.compile: {compiled.reason}.")
    eager = measured_error(stage, exact, EAGER, None)
    allowed = max(ALLOWED * (compiled.error or 0.0), eager.error or 0.0)
    return Baseline(plain, exact, allowed, compiling)


def decided(stage: Stage, base: Baseline, kernels: Mapping[str, str], terms: Terms) -> Decision:
    """Tries all choices on a GPU. Inside ``stage.opened``.

    Args:
        kernels: names of the regions that have a verified kernel, by key.
    """
    exact = base.reference
    tuning = AUTOTUNE * base.compiling if terms.max_autotune else 0.0
    end = terms.end - min(TIMING_S + tuning, terms.left / 2)
    chosen = Selection(stage, base.call, exact, base.allowed, end, terms.progress).run(
        choices(kernels, freeze=terms.freeze, calls=terms.calls)
    )
    calls: dict[str, Call | None] = {EAGER: None, COMPILE: base.call}
    notes: tuple[str, ...] = ()
    if not terms.max_autotune:
        notes = (f"{MAX_AUTOTUNE} is left out, as asked.",)
    elif terms.left < tuning:
        notes = (f"{MAX_AUTOTUNE} is left out: no time was left to compile it.",)
    else:
        calls[MAX_AUTOTUNE] = stage.as_people_do(MAX_AUTOTUNE)
        terms.progress(f"compiling the model with {MAX_AUTOTUNE}")
    timed = compared(stage, exact, {**calls, CHOSEN: chosen.call}, min(TIMING_S, max(5.0, terms.left)))
    found = Decision(chosen.way, chosen.call, chosen.tried, timed.beside(CHOSEN), exact, notes)
    return _never_slower(found, timed, stage, base.allowed)


def _never_slower(found: Decision, timed: Compared, stage: Stage, allowed: float) -> Decision:
    """Takes the model as it is or compiled as people do in place of what was chosen, where that is surely faster."""
    faster = []
    for name in (EAGER, COMPILE, MAX_AUTOTUNE):
        gain, way = timed.gain(name, CHOSEN), timed.ways.get(name)
        if (
            way is not None
            and (way.error or 0.0) <= allowed
            and (gain.low > 1.0 if gain else name in timed.taken and CHOSEN not in timed.taken)
        ):
            faster.append(name)
    if not faster:
        return found
    from torch._inductor import list_mode_options  # heavy

    best = min(faster, key=lambda name: min(timed.taken[name]))
    instead = Way(dict(list_mode_options()[best]) if best == MAX_AUTOTUNE else {}, compiled=best != EAGER)
    why = f"{best} as it is was faster in the end"
    tried = tuple(replace(each, kept=False, reason=why) if each.kept else each for each in found.tried)
    return replace(found, way=instead, call=stage.compiled(instead), tried=tried, ways=timed.beside(best))


def without_gpu(stage: Stage, kernels: Mapping[str, str], terms: Terms) -> Decision:
    """Places all verified kernels, where they can be run at all; nothing is timed. Inside ``stage.opened``."""
    terms.progress("computing the model in float64")
    exact = reference(stage)
    way = Way(regions=tuple(kernels) if interpreting() else ())
    call = stage.compiled(way)
    terms.progress("running the model with its kernels")
    calls: dict[str, Call | None] = {EAGER: None, COMPILE: stage.as_people_do(None), CHOSEN: call}
    ways = tuple(measured_error(stage, exact, name, each) for name, each in calls.items())
    why = "there is no GPU to time it on"
    tried = tuple(Tried(each, reason=why) for each in choices({}, freeze=terms.freeze, calls=terms.calls))
    return Decision(way, call, tried, ways, exact)
