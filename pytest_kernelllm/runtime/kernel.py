"""The adopted kernel module of one class: it is found and read at the first call, and imported at the first use."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_kernelllm.core.kernel_module import KernelModuleError, read_supports
from pytest_kernelllm.core.records import Domain

_HEADER = re.compile(r"# Triton kernel for (?P<target>.+)\n(?:# .*\n)*?# source hash: (?P<hash>\w+)\n")


AGAIN = "run pytest --kernelllm for a new one"

_LOADING = threading.RLock()
"""Held during the import of a kernel module: replicas of ``nn.DataParallel`` import it concurrently."""


class Unavailable(Exception):
    """A class's kernel cannot be used at all; the text follows "because"."""

    def __init__(self, reason: str, advice: str = "") -> None:
        """``advice`` states what to do; without one there is no warning."""
        super().__init__(reason)
        self.advice = advice


def refuse_if_disabled() -> None:
    """Refuses to read kernels if only originals should run.

    Raises:
        Unavailable: ``KERNELLLM_DISABLE`` is set.
    """
    if os.environ.get("KERNELLLM_DISABLE", "") not in ("", "0"):
        raise Unavailable("KERNELLLM_DISABLE is set")


class Kernel:
    """A kernel module by its dotted path, for one adopted class."""

    def __init__(self, name: str, dotted: str, marker: Path | None, loose: bool) -> None:
        """Name a kernel; nothing is read yet.

        Args:
            name: the class's qualified name.
            dotted: the kernel module's path.
            marker: the file with the marker, if there is one.
            loose: whether that file is outside any package.
        """
        self.name, self.dotted, self.marker, self.loose = name, dotted, marker, loose

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the names, without what was loaded."""
        return Kernel, (self.name, self.dotted, self.marker, self.loose)

    @functools.cached_property
    def path(self) -> Path:
        """The kernel module's file.

        Raises:
            Unavailable: it does not exist.
        """
        beside = self._beside()
        if beside is not None and beside.is_file():
            return beside
        try:
            spec = importlib.util.find_spec(self.dotted)
        except Exception:  # finding it imports the user's packages above it
            spec = None
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            raise Unavailable(
                f"there is no module {self.dotted}",
                "apply its patch again, or remove kernel= from the marker",
            )
        return Path(spec.origin)

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that the kernel was verified on, read from the file without importing it.

        Raises:
            Unavailable: the kernel cannot be used in this process.
        """
        refuse_if_disabled()
        if importlib.util.find_spec("triton") is None:
            raise Unavailable("triton is not installed")
        try:
            return read_supports(self.path.read_text(encoding="utf-8"))
        except (KernelModuleError, OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self.path} is not a kernel module ({error})", AGAIN) from None

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        """The kernel module's ``forward``; imports it, and with it triton.

        Raises:
            Unavailable: it is stale or cannot be imported.
        """
        if self._stale():
            raise Unavailable(f"{self.name} changed since {self.dotted} was verified", AGAIN)
        try:
            return self._import().forward  # type: ignore[no-any-return]  # ours to call, theirs to type
        except Exception as error:
            failed = f"{self.path} fails to import ({type(error).__name__}: {error})"
            raise Unavailable(failed, "fix it, or remove kernel= from the marker") from error

    def _import(self) -> Any:
        if self.path != self._beside():
            return importlib.import_module(self.dotted)
        # Several folders may each have a `_triton`, so the name is derived from the path.
        name = f"_kernelllm_{hashlib.sha256(str(self.path).encode()).hexdigest()[:12]}"
        with _LOADING:
            if name not in sys.modules:
                spec = importlib.util.spec_from_file_location(name, self.path)
                assert spec is not None and spec.loader is not None
                module = sys.modules[name] = importlib.util.module_from_spec(spec)
                try:
                    spec.loader.exec_module(module)
                except BaseException:
                    del sys.modules[name]
                    raise
            return sys.modules[name]

    def _beside(self) -> Path | None:
        if not (self.loose and self.marker):
            return None
        return self.marker.parent.joinpath(*self.dotted.split(".")).with_suffix(".py")

    def _stale(self) -> bool:
        """Whether the source is known to differ from what the kernel was verified against.

        That is known only if the marker's file has the same place in the project as then, not in an installed wheel.
        """
        header = _HEADER.match(self.path.read_text(encoding="utf-8"))
        if header is None or self.marker is None:
            return False
        path, _, name = header["target"].partition("::")
        if not self.marker.as_posix().endswith(f"/{path}"):
            return False
        root = Path(self.marker.as_posix().removesuffix(path))

        from pytest_kernelllm.discover.scan import scan_file

        found = (target for target in scan_file(self.marker, root).targets if target.name == name)
        return all(target.source_hash != header["hash"] for target in found)
