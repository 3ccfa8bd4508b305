"""Checks an export offline: its files against its statement, and the statement against a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.export.folder import ExportError
from pytest_kernelllm.beside.export.layout import VARIANT, metadata
from pytest_kernelllm.beside.export.provenance import PREDICATE, STATEMENT, TYPE, Package
from pytest_kernelllm.beside.export.signature import ENVELOPE, opened

METADATA = "metadata.json"


def checked(folder: Path, key: Path | None) -> dict[str, Any]:
    """Returns the layers that the statement of an export names, each with its verdict.

    Args:
        folder: an export, or the folder of its variant, as ``kernels`` downloads it; the latter has no envelope.
        key: the public key that must have signed the statement; None: whoever wrote the files is believed.

    Raises:
        ExportError: a file is missing, was added or was changed, or the key did not sign; the text names it.
    """
    variant = folder / VARIANT if (folder / VARIANT).is_dir() else folder
    statement = _read(variant / STATEMENT)
    if key is not None and opened(_read(folder / ENVELOPE), key) != statement:
        raise ExportError(f"{variant / STATEMENT} is not the statement that {folder / ENVELOPE} holds.")
    try:
        content = json.loads(statement)
        if (content["_type"], content["predicateType"]) != (TYPE, PREDICATE):
            raise ValueError(f"its predicate is {content['predicateType']}")
        stated = {each["name"]: each["digest"]["sha256"] for each in content["subject"]}
        predicate = content["predicate"]
        archs = predicate["package"].pop("archs")
        package = Package(**predicate["package"])
        layers: dict[str, Any] = predicate["layers"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExportError(
            f"{variant / STATEMENT} is no statement of an export ({type(error).__name__}: {error})."
        ) from None
    files = _files(variant)
    for name in sorted(stated.keys() | files.keys()):
        if name not in files or name not in stated:
            raise ExportError(f"{variant / name} {'is missing' if name in stated else 'was added since'}.")
        if hashlib.sha256(files[name]).hexdigest() != stated[name]:
            raise ExportError(f"{variant / name} was changed since.")
    if metadata(package, archs, {**files, STATEMENT: statement}) != _read(variant / METADATA):
        raise ExportError(f"{variant / METADATA} was changed since.")
    return layers


def _files(variant: Path) -> Mapping[str, bytes]:
    """All files of a variant but those that hold digests or signatures of the others, and compiled ones."""
    found = (path for path in sorted(variant.rglob("*")) if path.is_file() or path.is_symlink())
    names = {path: path.relative_to(variant).as_posix() for path in found}
    own = (STATEMENT, METADATA, f"{METADATA}.sigstore")
    return {
        name: _read(path)
        for path, name in names.items()
        if name not in own and "__pycache__" not in path.parts
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path} cannot be read ({error.strerror}).") from None
