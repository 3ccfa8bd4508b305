"""Reads the kernel modules that a patch adds, as untrusted input."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.characters import described, invisible, look_alike, reordering
from kernelllm_judge.core.kernel_module import unmodified
from kernelllm_judge.static_check.static_check import find_violations
from pytest_kernelllm.discover.adoption import made_for
from pytest_kernelllm.suggest.github.errors import SuggestionRefused, shown
from pytest_kernelllm.suggest.github.git import Change
from pytest_kernelllm.suggest.place import target_in_header

LARGEST_KERNEL = 2**20
"""Bytes of a kernel module."""


@dataclass(frozen=True)
class ProposedKernel:
    """A kernel module of the patch; its text has passed every check but that of its place."""

    path: str
    """From the top of the repository."""
    target: str
    """``Target.id``, by the header: relative to the project root, which may lie below the top."""
    source: str


def read_kernel(change: Change) -> ProposedKernel | None:
    """Returns the kernel module that a change adds; None if the file is no kernel module.

    Raises:
        SuggestionRefused: the judge would not read it, or a person could misread it.
    """
    new = change.new or b""
    target = target_in_header(new)
    return None if target is None else ProposedKernel(change.path, target, _checked(change.path, target, new))


def _checked(path: str, target: str, new: bytes) -> str:
    """Returns the source; raises as above."""
    name = shown(path)
    if len(new) > LARGEST_KERNEL:
        raise SuggestionRefused(f"{name} of the patch has more than {LARGEST_KERNEL:,} bytes.")
    try:
        source = new.decode()
    except UnicodeDecodeError:
        raise SuggestionRefused(f"{name} of the patch is not UTF-8.") from None
    if character := invisible(source):
        raise SuggestionRefused(
            f"{name} of the patch contains the invisible character {described(character)}."
        )
    if character := reordering(source) or look_alike(path + target):
        raise SuggestionRefused(
            f"{name} of the patch contains {described(character)}, by which a reader may be misled."
        )
    if made_for(new) is None or not unmodified(new):
        raise SuggestionRefused(
            f"{name} of the patch is not a kernel module as it was generated: its header or digest is wrong."
        )
    if violations := find_violations(source):
        raise SuggestionRefused(
            f"{name} of the patch, line {violations[0].line}: it {shown(violations[0].reason)}."
        )
    return source
