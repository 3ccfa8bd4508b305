"""``kernelllm doctor``: reports what this machine offers, and what adopted classes would run here, and why."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.architectures import architecture
from kernelllm_judge.core.program import program_name
from kernelllm_judge.core.records import Environment, KernelRecord, Target, Verdict
from kernelllm_judge.environment import find_environment, find_gpu
from kernelllm_judge.isolation.isolation import IsolationError
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.commands.common import OK, REJECTED, settings_of
from pytest_kernelllm.core.applies import applies, difference, interpreting
from pytest_kernelllm.core.words import counted, say
from pytest_kernelllm.discover.adoption import adopted_file, adoption_state, why_missing
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.session.session import Session, open_session

HELP = (
    "Explain this machine, and what adopted classes would run on it and why: exit 0 if all run their kernels."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 1 if an adopted class would not run its kernel."""
    settings = settings_of(options)
    with open_session(Path.cwd(), settings) as session:
        here = find_environment("cpu", settings.arch) if interpreting() else session.context.environment
        known = KnownVerdicts(here, tuple(session.context.store.verdicts))
        for name, value in _surroundings(session, known):
            print(f"{name + ':':<16}{value}")
        problems = [*session.context.store.problems]
        found = scan([Path(path) for path in settings.paths or ["."]], Path.cwd())
        problems += map(str, found.problems)
        adopted = [target for target in found.targets if target.kernel is not None]
        print(f"{'adopted:':<16}{len(adopted)} of {len(found.targets)} marked classes")
        good = [_read(session, target, known) for target in adopted]
        say(*problems)
    return OK if all(good) else REJECTED


@dataclass(frozen=True)
class KnownVerdicts:
    """The verdicts in the store, and the environment here."""

    here: Environment
    """The environment in which adopted kernels would run."""
    records: tuple[KernelRecord, ...]

    def holds(self, verdict: Verdict) -> bool:
        """Returns whether a verdict was given in this environment, and stands."""
        return applies(verdict, self.here)


# --------------------------------------------------------------------------- the machine


def _surroundings(session: Session, known: KnownVerdicts) -> Iterator[tuple[str, str]]:
    """Yields what there is on this machine, without importing torch."""
    here, settings = session.context.environment, session.context.settings
    yield "python", f"{sys.version.split()[0]} ({sys.executable})"
    for name, version in (("torch", here.torch), ("triton", here.triton)):
        yield name, version or "not installed; run `pip install 'pytest-kernelllm[torch]'`"
    yield "gpu", f"{here.gpu} ({here.arch}), driver {here.driver}" if here.gpu else _without_gpu(here.arch)
    yield "architecture", f"{here.arch}, {architecture(here.arch).support}"
    try:
        yield "isolation", session.context.isolation.level
    except IsolationError as error:
        yield "isolation", str(error)
    accepted = [record.verdict for record in known.records if record.verdict.accepted]
    verified = sum(map(known.holds, accepted))
    in_all = f"{counted(verified, 'kernel')} verified in this environment, {len(accepted)} in all"
    yield "store", f"{session.context.store.path}: {in_all}"
    yield "language model", _language_model(session)
    try:
        names = ", ".join(generator.name for generator in session.generators)
        yield "candidates", f"written by {names}" + (f" ({session.chosen.why})" if session.chosen.why else "")
    except GenerateError as error:
        yield "candidates", str(error)
    for variable in ("KERNELLLM_DISABLE", "KERNELLLM_STRICT", "KERNELLLM_INTERPRET", "TRITON_INTERPRET"):
        if variable in os.environ:
            yield "environment", f"{variable}={os.environ[variable]}"
    if settings.paths:
        yield "looks in", " ".join(settings.paths)


def _without_gpu(arch: str) -> str:
    runs = "adopted kernels run in Triton's interpreter" if interpreting() else "no adopted kernel runs"
    return f"none, so {runs}; candidates are judged in Triton's interpreter and compiled for {arch}"


def _language_model(session: Session) -> str:
    settings = session.context.settings
    if settings.endpoint:
        return f"the endpoint {settings.endpoint}"
    from pytest_kernelllm.models.local.files import why_unusable

    gpu = find_gpu()
    why_not = why_unusable(
        settings.model, settings.revision, settings.dtype, settings.quantization, gpu.free if gpu else 0
    )
    return f"no endpoint; {why_not or f'{settings.model} is in the cache and fits the GPU'}"


# --------------------------------------------------------------------------- targets


def _read(session: Session, target: Target, known: KnownVerdicts) -> bool:
    """Reports on an adopted class without importing it; returns whether its kernel would run."""
    reason = _why_not(session, target)
    if reason:
        print(f"{target.id} runs its original forward: {reason}")
    else:
        print(f"{target.id} runs {target.kernel} inside its domain{_reserve(session, target, known)}")
    return not reason


def _why_not(session: Session, target: Target) -> str:
    """The reason why no call runs the adopted kernel here, found without importing; empty if some may."""
    if os.environ.get("KERNELLLM_DISABLE", "") not in ("", "0"):
        return "KERNELLLM_DISABLE is set"
    if not session.context.environment.triton:
        return "triton is not installed"
    if not session.context.environment.gpu and not interpreting():
        return "there is no GPU here"
    match adoption_state(session.context.root, target):
        case "missing":
            return why_missing(ProjectSources(session.context.root), target)
        case "stale":
            return (
                f"{target.name} changed since {target.kernel} was made; run pytest --kernelllm for a new one"
            )
    return ""


def _reserve(session: Session, target: Target, known: KnownVerdicts) -> str:
    """A note on how far a kernel that runs is verified; it continues the sentence."""
    if adoption_state(session.context.root, target) == "edited":
        return ", although it was edited since it was verified"
    file = adopted_file(session.context.root, target)
    assert file is not None  # else it would not run
    kernel_hash = program_name(file.read_text(encoding="utf-8"))
    verdicts = [record.verdict for record in known.records if record.candidate.kernel_hash == kernel_hash]
    correct = [verdict for verdict in verdicts if verdict.correct]
    if any(map(known.holds, correct)):
        return ", verified in this environment"
    if correct:
        return f", although it was verified {difference(correct[0], known.here)}"
    return "; the store has no verdict on it"
