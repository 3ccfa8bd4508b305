"""Makes the generators that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_kernelllm.config import Settings
from pytest_kernelllm.generate.protocol import GenerateError, Generator


def make_generators(settings: Settings, root: Path) -> tuple[Generator, ...]:
    """The generators of ``settings.generator``, in the order named, each once.

    Args:
        settings: ``generator`` and what the named generators need (``candidates_dir``, ``arch``…).
        root: the project root; relative folders start there.

    Raises:
        GenerateError: an unknown name, no name at all, or a generator that cannot work.
    """
    factories: dict[str, Callable[[Settings, Path], Generator]] = {"files": _files, "inductor": _inductor}
    names = list(dict.fromkeys(name.strip() for name in settings.generator.split(",") if name.strip()))
    known = ", ".join(sorted(factories))
    if not names:
        raise GenerateError(f"No generator is named: set `generator` to one or more of {known}.")
    for name in names:
        if name not in factories:
            raise GenerateError(
                f"There is no generator `{name}`: `generator` takes {known}, comma-separated."
            )
    return tuple(factories[name](settings, root) for name in names)


def _files(settings: Settings, root: Path) -> Generator:
    from pytest_kernelllm.generate.files import FilesGenerator

    if not settings.candidates_dir:
        raise GenerateError("The `files` generator needs a folder: set `candidates_dir`.")
    return FilesGenerator(root / settings.candidates_dir)


def _inductor(settings: Settings, root: Path) -> Generator:
    from pytest_kernelllm.generate.inductor import InductorGenerator

    generator: Generator = InductorGenerator()
    return generator
