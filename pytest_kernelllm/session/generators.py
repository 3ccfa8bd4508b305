"""Makes the generators that the settings name, or the best one at hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelllm_judge.core.records import ADOPTED, Completion, Target
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.inductor.variants import VARIANTS
from pytest_kernelllm.generate.protocol import GenerateError, Generator, Request
from pytest_kernelllm.models.from_settings import chats, language_model, sampling
from pytest_kernelllm.models.generator import NO_HOOK, KernelLLMGenerator, PromptHook
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.session.search import SearchStage


class PooledInductor(InductorGenerator):
    """The ``inductor`` generator, at work in the judging processes."""

    concurrent = True

    def __init__(
        self, arch: str, processes: TargetProcesses, search: SearchStage | None = None, searched_for: str = ""
    ) -> None:
        """Prepares; the first request starts writing."""
        super().__init__(arch)
        self._processes = processes
        self._search = search
        self._searched_for = searched_for

    def identity(self) -> str:
        """See ``InductorGenerator.identity``; what a search finds depends on the GPU and the budget as well."""
        return f"{super().identity()} search={self._searched_for}" if self._search else super().identity()

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields the requested completions, as far as there are so many distinct ones, each when it is written.

        With a search, the first one is the fastest program found, which comes last, and the others are those that it started from.
        """
        for request in requests:
            for completion in self._completions(request.target, request.indices):
                yield request, completion

    def _completions(self, target: Target, indices: Sequence[int]) -> Iterator[Completion]:
        if self._search is None:
            yield from self._processes.write(target, indices)
            return
        texts: list[Completion] = []
        for completion in self._processes.write(target, range(len(VARIANTS))):
            if not completion.text:
                yield replace(completion, index=indices[0])
                return
            texts.append(completion)
            if len(texts) in indices:  # judged while the search goes on
                yield replace(completion, index=len(texts))
        if 0 in indices and texts:
            given = {each.text for each in texts[: max(indices)]}
            best = self._search.fastest(target, texts)
            for completion in (best, *texts[len(given) :]):
                if completion.text not in given:
                    yield replace(completion, index=0)
                    return


NAMES = ("auto", "kernelllm", "local", "endpoint", "inductor", "files")


@dataclass(frozen=True)
class Surroundings:
    """What generators need besides the settings."""

    root: Path
    """The project root; relative folders start there."""
    progress: Callable[[str], None] = lambda text: None
    """Called with what takes long."""
    hook: PromptHook = NO_HOOK
    """May replace prompts."""
    gpu: str = ""
    """Name of the GPU; empty without one."""
    arch: str = ""
    """Architecture of the GPU, such as ``sm_90``; empty without one."""
    free: int = 0
    """Bytes that are free on the GPU with most room."""
    processes: TargetProcesses | None = None
    """Where ``inductor`` writes; None: in this process."""
    search: SearchStage | None = None
    """Finds the fastest of Inductor's programs; None: it is not searched for."""


@dataclass(frozen=True)
class Chosen:
    """The generators of a run."""

    generators: tuple[Generator, ...]
    why: str = ""
    """What ``auto`` went by; empty where the settings name a generator."""


def choose(settings: Settings, around: Surroundings) -> Chosen:
    """Chooses the generators of ``settings.generator``, in the order named, each once.

    Raises:
        GenerateError: an unknown name, no name at all, or a generator that cannot work.
    """
    names = [name.strip() for name in settings.generator.split(",") if name.strip()]
    if not names:
        raise GenerateError(f"No generator is named: set `generator` to one or more of {', '.join(NAMES)}.")
    why = ""
    for position, name in enumerate(names):
        if name not in NAMES:
            raise GenerateError(
                f"There is no generator `{name}`: `generator` takes {', '.join(NAMES)}, comma-separated."
            )
        if name == "auto":
            names[position], why = _best(settings, around)
        elif name == "kernelllm":
            names[position] = "endpoint" if settings.endpoint else "local"
    makers = {"files": _files, "inductor": _inductor, "local": _local, "endpoint": _endpoint}
    return Chosen(tuple(makers[name](settings, around) for name in dict.fromkeys(names)), why)


def check_names(generators: Sequence[Generator]) -> None:
    """Checks that the name of each generator can stand in ids and is its own.

    Raises:
        GenerateError: it cannot, or two generators share a name.
    """
    seen: set[str] = set()
    for name in (generator.name for generator in generators):
        if not re.fullmatch(r"\w[\w.+-]*", name) or name == ADOPTED.generator:
            raise GenerateError(
                f"A generator cannot be called {name!r}: give it a name of letters, digits and `_.+-`, "
                f"other than `{ADOPTED}`."
            )
        if name in seen:
            raise GenerateError(f"Two generators are called `{name}`: give each a `name` of its own.")
        seen.add(name)


def _best(settings: Settings, around: Surroundings) -> tuple[str, str]:
    """Returns what ``auto`` stands for here, and why."""
    if settings.endpoint:
        return "endpoint", "an endpoint is set"
    if not around.gpu:
        return "inductor", "no endpoint is set, and there is no GPU for a local model"
    from pytest_kernelllm.models.local.files import why_unusable

    why_not = why_unusable(
        settings.model, settings.revision, settings.dtype, settings.quantization, around.free
    )
    if why_not:
        return "inductor", f"no endpoint is set, and {why_not}"
    return "local", f"{settings.model} is in the cache and fits {around.gpu}"


def _files(settings: Settings, around: Surroundings) -> Generator:
    from pytest_kernelllm.generate.files import FilesGenerator

    if not settings.candidates_dir:
        raise GenerateError("The `files` generator needs a folder: set `candidates_dir`.")
    return FilesGenerator(around.root / settings.candidates_dir)


def _inductor(settings: Settings, around: Surroundings) -> Generator:
    arch = around.arch or settings.arch
    if around.processes is None:
        return InductorGenerator(arch)
    return PooledInductor(arch, around.processes, around.search, f"{settings.search:g}s on {around.gpu}")


def _local(settings: Settings, around: Surroundings) -> Generator:
    model = language_model(replace(settings, endpoint=""), around.progress)
    on_gpu = bool(around.gpu) and settings.device_map != "cpu"
    return KernelLLMGenerator("local", model, sampling(settings), on_gpu=on_gpu, hook=around.hook)


def _endpoint(settings: Settings, around: Surroundings) -> Generator:
    if not settings.endpoint:
        raise GenerateError(
            "The `endpoint` generator needs an address: set `endpoint` (docs/how-to/endpoint.md)."
        )
    model = language_model(settings, around.progress)
    gpu = f"{around.gpu} ({around.arch})" if around.gpu else settings.arch
    return KernelLLMGenerator(
        "endpoint", model, sampling(settings), on_gpu=False, hook=around.hook, gpu=gpu, chats=chats(settings)
    )
