"""Finds the targets that a person names: the same names for every command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelllm_judge.core.records import Target
from kernelllm_judge.pair_files import PairError, find_reference
from kernelllm_runtime.source.resolve import label
from pytest_kernelllm.commands.common import CommandError
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.suggest.patch import patch_name

NAMES = "FILE.py::Class, FILE.py, Class, or the name of its patch"


def find_target(reference: str) -> Target:
    """Returns the target that a person names, or the only one of a file, which may be in KernelBench's form.

    Raises:
        CommandError: there is none, or there are several.
    """
    here = Path.cwd()
    if Path(reference.partition("::")[0]).is_file():
        try:
            return find_reference(reference, here)
        except PairError as error:
            raise CommandError(str(error)) from None
    found = named_targets(reference, scan([here], here).targets, here)
    if len(found) > 1:
        raise CommandError(f"{reference} names {_listed(found)}; name one of them.")
    return found[0]


def named_targets(name: str, targets: Sequence[Target], root: Path, kind: str = "target") -> list[Target]:
    """Returns the targets that a name means.

    Args:
        name: one of ``NAMES``; files are relative to the working directory or to the project.

    Raises:
        CommandError: there is none; the nearest three are named.
    """
    file, _, class_name = name.partition("::")
    paths = {label(Path(file).absolute(), root), label(root / file, root)} if file else set()
    found = [t for t in targets if t.path in paths and class_name in ("", t.name)]
    if not found and name and "::" not in name:
        short = name.removesuffix(".patch")
        ends = ((t, f".{t.name}", f".{patch_name([t.id])}") for t in targets)
        found = [t for t, own, patch in ends if own.endswith(f".{short}") or patch.endswith(f".{short}")]
    if not found:
        absent = file.endswith(".py") and not any((root / path).is_file() for path in paths)
        what = f"file {file}" if absent else f"{kind} {name!r}"
        raise CommandError(f"There is no {what}; {nearest(name, targets)}.")
    return found


def nearest(name: str, targets: Iterable[Target]) -> str:
    """Says which targets have a name like this one."""
    spelled = {text: t.id for t in targets for text in (t.id, t.name, patch_name([t.id]))}
    close = difflib.get_close_matches(name, spelled, len(spelled) or 1, 0.4) if name else []
    ids = list(dict.fromkeys([*(spelled[text] for text in close), *spelled.values()]))[:3]
    return f"the nearest are {', '.join(ids)}" if ids else "nothing is marked here"


def _listed(targets: Iterable[Target]) -> str:
    return ", ".join(target.id for target in targets)
