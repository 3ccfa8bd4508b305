"""Lays a data set's rows out as files in KernelBench's form, which are what is judged and benchmarked."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_kernelllm.beside.kernelbook.files import read
from pytest_kernelllm.beside.kernelbook.form import candidate_of, reference_of
from pytest_kernelllm.beside.kernelbook.row import KernelBookError, Pair, pair_of
from pytest_kernelllm.beside.verify.pairs import Pair as JudgedPair

LeftOut = Callable[[int, str], None]
"""Called with the number of a row, from 1, and the reason why it is left out."""


def references(path: Path, folder: Path, left_out: LeftOut) -> Path:
    """Returns a folder with a file for each row's ``python_code``, such as ``00012_SumAggregator.py``.

    Args:
        folder: where such folders are kept, one for each content of a data set.

    Raises:
        KernelBookError: the data set cannot be read, or the files cannot be written.
    """
    files: dict[str, str] = {}
    for number, name, pair in _pairs(path, left_out):
        try:
            files[name] = reference_of(pair)
        except KernelBookError as error:
            left_out(number, str(error))
    if not files:
        raise KernelBookError(f"{path} has no row in KernelBook's form.")
    text = "\0".join(f"{name}\0{code}" for name, code in files.items())
    place = folder / hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    if not place.is_dir():
        _write(place, files)
    return place


def pairs(path: Path, folder: Path, left_out: LeftOut) -> list[JudgedPair]:
    """Writes both texts of each row into a folder of its own, and returns what there is to judge.

    Raises:
        KernelBookError: the data set cannot be read.
        OSError: the folder cannot be written.
    """
    found = []
    for number, name, pair in _pairs(path, left_out):
        try:
            found.append(lay_out_pair(pair, name, folder / name))
        except KernelBookError as error:
            left_out(number, str(error))
    return found


def lay_out_pair(pair: Pair, name: str, folder: Path) -> JudgedPair:
    """Writes a pair as ``reference.py`` and ``candidate.py``.

    Raises:
        KernelBookError: it is not in KernelBook's form.
    """
    reference, candidate = reference_of(pair), candidate_of(pair)
    folder.mkdir(parents=True)
    for file, text in (("reference.py", reference), ("candidate.py", candidate)):
        (folder / file).write_text(text, encoding="utf-8", errors="surrogatepass")
    return JudgedPair(name, str(folder / "reference.py"), folder / "candidate.py")


def _pairs(path: Path, left_out: LeftOut) -> Iterator[tuple[int, str, Pair]]:
    """Yields the pairs that have texts, with the row's number and a name that is fit for a file."""
    for number, row in enumerate(read(path), 1):
        try:
            pair = pair_of(row)
        except KernelBookError as error:
            left_out(number, str(error))
            continue
        yield number, f"{number:05}_{re.sub(r'[^A-Za-z0-9]', '_', pair.entry_point)[:60]}", pair


def _write(place: Path, files: dict[str, str]) -> None:
    """Writes files into a folder that appears when it is complete."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=place.parent))
        try:
            for name, text in files.items():
                (new / f"{name}.py").write_text(text, encoding="utf-8", errors="surrogatepass")
            new.chmod(0o755)
            new.rename(place)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as error:
        if not place.is_dir():  # unless another run was faster
            raise KernelBookError(f"{place} cannot be written: {error.strerror}.") from None
