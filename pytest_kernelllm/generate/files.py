"""The ``files`` generator, which takes candidates from a folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelllm_judge.core.records import Completion
from kernelllm_judge.render.answer_format import format_of
from pytest_kernelllm.generate.protocol import GenerateError, Generator, Request

_SUFFIXES = (".py", ".txt", ".md")


class FilesGenerator(Generator):
    """Takes candidates from files in ``candidates_dir`` that are named after the class they replace.

    For a target ``RMSNorm`` it reads these files, in natural order (``_2`` before ``_10``)::

        DIR/RMSNorm.py        DIR/RMSNorm_*.py        DIR/RMSNorm/*.py

    and the same with ``.txt`` or ``.md``. Each file is one candidate: either a kernel module (a top-level
    ``forward`` and no ``ModelNew``) or an answer of KernelLLM (a ``ModelNew`` class, alone or fenced in
    prose). ``samples`` limits their number. The files of a nested class are named ``Outer.Inner``.
    """

    name = "files"

    def __init__(self, directory: Path) -> None:
        """``directory``: the folder.

        Raises:
            GenerateError: the folder does not exist.
        """
        if not directory.is_dir():
            raise GenerateError(
                f"The `files` generator finds no folder {directory}: "
                "create it, or set `candidates_dir` to another."
            )
        self._directory = directory

    def identity(self) -> str:
        """Returns ``files:`` and a hash of the names and bytes of all files that could be candidates."""
        digest = hashlib.sha256()
        for path in sorted(p for p in self._directory.rglob("*") if _is_candidate(p)):
            name = path.relative_to(self._directory).as_posix().encode()
            content = path.read_bytes()
            digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
        return f"files:{digest.hexdigest()[:16]}"

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields one completion per file; a target without files gets an empty one whose note names the patterns."""
        for request in requests:
            name = request.target.name
            files = self._files(name)
            if not files:
                patterns = f"{name}.py, {name}_*.py or {name}/*.py (or .txt, .md)"
                note = f"No candidate file {patterns} in {self._directory}."
                yield request, Completion(self.name, 0, "", "modelnew", note=note)
            for index in request.indices:
                if index < len(files):
                    yield request, self._completion(index, files[index])

    def _files(self, name: str) -> list[Path]:
        beside = [p for p in self._directory.iterdir() if p.stem == name or p.name.startswith(f"{name}_")]
        folder = self._directory / name
        inside = list(folder.iterdir()) if folder.is_dir() else []
        return sorted((p for p in [*beside, *inside] if _is_candidate(p)), key=self._order)

    def _order(self, path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", path.relative_to(self._directory).with_suffix("").as_posix())
        return [(int(part), "") if part.isdecimal() else (0, part) for part in [*parts, path.suffix]]

    def _completion(self, index: int, path: Path) -> Completion:
        note = path.relative_to(self._directory).as_posix()
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return Completion(self.name, index, "", "modelnew", note=f"{note} is not UTF-8 text.")
        return Completion(self.name, index, text, format_of(text), note=note)


def _is_candidate(path: Path) -> bool:
    hidden = path.name.startswith((".", "__"))
    return path.suffix in _SUFFIXES and not hidden and path.is_file()
