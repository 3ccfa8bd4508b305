"""The way from a model and its example to what it gains: captured, cut, judged, placed, chosen and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.environment import find_environment
from kernelllm_judge.target.calls import Call as Arguments
from kernelllm_judge.target.importing import import_file
from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.instance import TextKernel, dispatching
from pytest_kernelllm.beside.optimize.environment import environment_of
from pytest_kernelllm.beside.ranking.costs import costs
from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.ranking.factory import Factory, Subject, build
from pytest_kernelllm.beside.ranking.running import explained, measured
from pytest_kernelllm.beside.whole.answer import Answer, ChoiceAnswer, RegionAnswer
from pytest_kernelllm.beside.whole.capture import Captured, Found, capture
from pytest_kernelllm.beside.whole.decide import Decision, Terms, baseline, decided, without_gpu
from pytest_kernelllm.beside.whole.judging import Begun, Judged, begin, judged
from pytest_kernelllm.beside.whole.regions_file import drawable, regions_file, regions_source, write_source
from pytest_kernelllm.beside.whole.select import Tried
from pytest_kernelllm.beside.whole.stage import Call, Stage
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.session.session import Session, open_session
from pytest_kernelllm.store import Store

JUDGING = 0.45
"""Share of the budget that judging may take."""
SEARCHING = 0.02
"""Share of the budget that the search for one region's fastest kernel may take."""


UNDRAWN = "it reads tensors of a dtype for which no kernels are judged"


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    root: Path
    """The project's root."""
    settings: Settings
    regions: Path | None = None
    """The file that regions are written to; None: one in the store, named by the model and by what it holds."""
    budget: float = 600.0
    """Seconds from nothing to the answer, about."""
    freeze: bool = False
    """Whether weights may become constants of the compiled code."""
    max_autotune: bool = True
    """Whether ``torch.compile``'s ``max-autotune`` is compared with."""
    progress: Callable[[str], None] = lambda text: None
    """Called with a few words about what is being done."""


@dataclass(frozen=True)
class Optimized:
    """The answer, and what it takes to run the model so."""

    answer: Answer
    kept: tuple[Judged, ...]
    """The regions that run kernels."""
    call: Call


def optimize(given: Subject | Factory, request: Request) -> Optimized:
    """Optimizes a model for its example, and leaves the model as it was.

    Args:
        given: the model with its example; or a function that returns them, which makes tensors on the GPU if there is one.

    Raises:
        RankError: the model cannot be built or run; one sentence.
        GenerateError: a generator cannot work.
    """
    started = time.monotonic()
    end = started + request.budget
    # A search as long as usual for each region would take all of a short budget.
    search = min(request.settings.search, SEARCHING * request.budget)
    settings = replace(request.settings, search=search)
    with ExitStack() as stack:
        with open_session(request.root, settings, progress=request.progress, writers=True) as session:
            session.warm()  # while the model is built and captured
            subject = bare(given if isinstance(given, Subject) else _built(given, request))
            stage = Stage(subject, {})
            stack.enter_context(stage.opened())
            request.progress("capturing the model's graph")
            with explained():
                captured = capture(lambda backend: stage.run(stage.by(backend)))
            able = [each for each in captured.regions if drawable(each)]
            name = type(subject.model).__qualname__
            file = request.regions or regions_file(Store(request.root, settings.store).path, name, able)
            begun = _begun(session, able, name, file, request)
            on_gpu = _is_on_gpu(subject.model)
            with ThreadPoolExecutor(1) as waiting:
                judging = waiting.submit(_judged, session, begun, able, request)
                try:
                    with explained():
                        base = baseline(stage, request.progress) if on_gpu else None
                    regions = judging.result()
                except BaseException:
                    session.interrupt()  # or else the thread goes on
                    raise
        regions += [Judged(each, reason=UNDRAWN) for each in captured.regions if each not in able]
        accepted = [each for each in regions if each.accepted]
        stage.modules.update({each.found.text.key: _module(each, file, request.root) for each in accepted})
        kernels = {each.found.text.key: each.found.text.name for each in accepted}
        terms = Terms(end, request.freeze, request.max_autotune, request.progress, captured.calls)
        with explained():
            whole = decided(stage, base, kernels, terms) if base else without_gpu(stage, kernels, terms)
    idle = {key: why for key in whole.way.regions if (why := unused(stage.modules[key]))}
    limit = _limit(subject, request) if on_gpu else None
    answer = Answer(
        model=name,
        environment=environment_of(subject.model) or find_environment("cpu"),
        regions=tuple(_region(each, whole, idle) for each in regions),
        choices=tuple(map(_choice, whole.tried)),
        ways=whole.ways,
        options=dict(whole.way.options),
        attention=whole.way.attention,
        compiled=whole.way.compiled,
        float64=whole.reference.exact,
        limit_ms=limit,
        limit_share=limit / ms if limit and (ms := whole.ways[-1].ms) else None,
        seconds=time.monotonic() - started,
        notes=_notes(whole, subject, captured),
    )
    kept = tuple(each for each, region in zip(regions, answer.regions, strict=True) if region.kept)
    return Optimized(answer, kept, whole.call)


def _built(factory: Factory, request: Request) -> Subject:
    request.progress("building the model")
    on_gpu = torch.cuda.is_available() and request.settings.device != "cpu"
    return build(factory, "cuda").to("cuda") if on_gpu else build(factory, None)


def _is_on_gpu(model: nn.Module) -> bool:
    return torch.cuda.is_available() and any(t.is_cuda for t in (*model.parameters(), *model.buffers()))


def bare(subject: Subject) -> Subject:
    """Returns a model without the wrapper that ``torch.compile`` put around it."""
    if isinstance(subject.model, torch.jit.ScriptModule):
        raise RankError(
            "The model is TorchScript, which torch.compile runs as it is; return the module that it was made of."
        )
    inside = getattr(subject.model, "_orig_mod", None)
    if not isinstance(inside, nn.Module):
        return subject
    if not isinstance(subject.call, Arguments):
        raise RankError("The model is what torch.compile returned; return the module that was given to it.")
    return replace(subject, model=inside)


def _begun(
    session: Session, able: Sequence[Found], model: str, file: Path, request: Request
) -> Begun | SessionError:
    if not able:
        return Begun((), (), 0.0)
    write_source(file, regions_source(model, able))
    request.progress(f"judging {len(able)} regions")
    try:
        return begin(session, file, able, JUDGING * request.budget)
    except SessionError as error:
        return error


def _judged(
    session: Session, begun: Begun | SessionError, able: Sequence[Found], request: Request
) -> list[Judged]:
    left = [len(able)]

    def done() -> None:
        left[0] -= 1
        request.progress(f"judging regions: {max(left[0], 0)} of {len(able)} left")

    try:
        if isinstance(begun, SessionError):
            raise begun
        return judged(session, begun, done)
    except SessionError as error:  # the compiler's options may pay all the same
        return [Judged(each, reason=str(error).rstrip(".")) for each in able]


def _module(judged: Judged, file: Path, root: Path) -> nn.Module:
    """A module of a region's class that runs the accepted kernel."""
    cls = getattr(import_file(file.resolve(), root), judged.found.text.name)
    assert judged.outcome is not None and judged.outcome.candidate is not None  # it was accepted
    candidate = judged.outcome.candidate
    made = dispatching(cls, TextKernel(cls.__qualname__, candidate.kernel_hash, candidate.source))
    return made().eval()


def unused(module: nn.Module) -> str:
    """Returns why a module ran its original in all of the example's calls; empty if it ran its kernel."""
    dispatcher = getattr(type(module).forward, DISPATCHER)
    forms = [form for known in dispatcher.known.values() for each in known.forms.values() for form in each]
    if dispatcher.off is None and any(form.kernel is not None for form in forms):
        return ""
    return str(dispatcher.off or "the example's calls are outside what its kernel was verified for")


def _limit(subject: Subject, request: Request) -> float | None:
    """ms that the model takes with its heavy operations as they are, and all else fused at the roofline."""
    try:
        run = measured(subject, request.progress)
    except RankError:
        return None
    assert run.roofline is not None  # on a GPU it is measured
    return costs(run.trace, run.roofline).whole.fused / 1e3


def _region(judged: Judged, chosen: Decision, idle: Mapping[str, str]) -> RegionAnswer:
    text = judged.found.text
    verdict = judged.outcome.verdict if judged.outcome else None
    timing = verdict.timing[0] if verdict and verdict.timing else None
    kept = text.key in chosen.way.regions and text.key not in idle
    reason = judged.reason or idle.get(text.key, "")
    if not kept and not reason:
        about = [t.reason for t in chosen.tried if text.key in (t.choice.regions or ()) and t.reason]
        reason = about[-1] if about else "there is no GPU to run its kernel"
    candidate = judged.outcome.candidate if judged.outcome and judged.accepted else None
    return RegionAnswer(
        name=text.name,
        places=judged.found.places,
        times=judged.found.times,
        compiled_us=timing.compiled.p50 if timing and timing.compiled else None,
        kernel_us=timing.kernel.p50 if timing else None,
        roofline=timing.roofline_share if timing else None,
        kernel=candidate.kernel_hash if candidate else "",
        kept=kept,
        reason=reason,
    )


def _choice(tried: Tried) -> ChoiceAnswer:
    return ChoiceAnswer(tried.choice.name, tried.gain, tried.kept, tried.reason)


def _notes(whole: Decision, subject: Subject, captured: Captured) -> tuple[str, ...]:
    notes = [*whole.notes, *filter(None, (captured.note, whole.reference.note))]
    if not whole.way.compiled:
        notes.append("No compiled way is faster than the model as it is, so it stays as it is.")
    if not whole.reference.exact:
        notes.append(
            f"Errors are relative to the model as it is, because float64 does not run: {whole.reference.why}."
        )
    if whole.way.options.get("triton.cudagraphs"):
        notes.append(
            "CUDA graphs use the memory of outputs again: what a call returns is valid until the next call."
        )
    if whole.way.options.get("freezing"):
        notes.append("Weights are constants of the compiled code: it does not see later changes of them.")
    if subject.model.training:
        notes.append(
            "The model is in train() mode, so dropout and batch statistics are those of training; call model.eval() for inference."
        )
    return tuple(notes)
