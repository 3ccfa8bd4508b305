"""The adopted kernel module of one class: found and read at the first call, imported at the first use."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_kernelllm.kernel_module import KernelModuleError, read_supports
from pytest_kernelllm.records import Domain

_HEADER = re.compile(r"# Triton kernel for (?P<target>.+)\n(?:# .*\n)*?# source hash: (?P<hash>\w+)\n")


class Unavailable(Exception):
    """A class's kernel cannot be used at all; the text completes "because"."""

    def __init__(self, reason: str, advice: str = "") -> None:
        """``advice``: what to do about it; without, it is no matter for a warning."""
        super().__init__(reason)
        self.advice = advice


class Kernel:
    """A kernel module by its dotted path, for one adopted class."""

    def __init__(self, cls: type, dotted: str, marker: Path | None, loose: bool) -> None:
        """``marker``: the file with the marker; ``loose``: it is in no package."""
        self.cls, self.dotted, self.marker, self.loose = cls, dotted, marker, loose

    @functools.cached_property
    def path(self) -> Path:
        """The kernel module's file.

        Raises:
            Unavailable: there is none.
        """
        if self.loose and self.marker:
            beside = self.marker.parent.joinpath(*self.dotted.split(".")).with_suffix(".py")
            if beside.is_file():
                return beside
        try:
            spec = importlib.util.find_spec(self.dotted)
        except Exception:  # finding it imports the packages above, which are the user's
            spec = None
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            raise Unavailable(
                f"there is no module {self.dotted}", "apply its patch again, or take kernel= out of the marker"
            )
        return Path(spec.origin)

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        """What the kernel was verified on, read from the file without importing it.

        Raises:
            Unavailable: no kernel for this process.
        """
        if os.environ.get("KERNELLLM_DISABLE", "") not in ("", "0"):
            raise Unavailable("KERNELLLM_DISABLE is set")
        if importlib.util.find_spec("triton") is None:
            raise Unavailable("triton is not installed")
        try:
            return read_supports(self.path.read_text(encoding="utf-8"))
        except (KernelModuleError, OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"{self.path} is no kernel module ({error})", "run pytest --kernelllm for a new one"
            ) from None

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        """The kernel module's ``forward``; imports it, and with it triton.

        Raises:
            Unavailable: it is stale or cannot be imported.
        """
        if self._stale():
            raise Unavailable(
                f"{self.cls.__qualname__} changed since {self.dotted} was verified",
                "run pytest --kernelllm for a new one",
            )
        try:
            forward = self._import().forward
            names, expected = list(inspect.signature(forward).parameters), list(inspect.signature(self.original).parameters)
        except Exception as error:
            raise Unavailable(
                f"{self.path} fails to import ({type(error).__name__}: {error})",
                "mend it, or take kernel= out of the marker",
            ) from error
        if names != expected[: len(names)]:
            raise Unavailable(
                f"forward of {self.dotted} takes {', '.join(names)}, the original {', '.join(expected)}",
                "run pytest --kernelllm for a new one",
            )
        return forward  # type: ignore[no-any-return]  # what the user's file holds
