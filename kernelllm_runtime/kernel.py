"""The adopted kernel module of one class: it is found and read at the first call, and imported at the first use."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

from kernelllm_runtime.any_kernel import AGAIN, Unavailable, refuse_if_disabled
from kernelllm_runtime.supports import KernelModuleError, read_supports
from kernelllm_runtime.targets import Domain

_HEADER = re.compile(r"# Triton kernel for (?P<target>.+)\n(?:# .*\n)*?# source hash: (?P<hash>\w+)\n")

_BESIDE = "_kernelllm_"
"""How the names of kernel modules begin that are loaded from a file beside the marker."""

LOADING = threading.RLock()
"""Held during the import of a kernel module: replicas of ``nn.DataParallel`` import it concurrently."""


class Kernel:
    """A kernel module by its dotted path, for one adopted class."""

    def __init__(self, name: str, dotted: str, marker: Path | None, loose: bool) -> None:
        """Stores the names; files are read when they are asked for.

        Args:
            marker: the file with the marker, if there is one.
            loose: whether that file is outside any package.
        """
        self.name, self.dotted, self.marker, self.loose = name, dotted, marker, loose

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the names, without what was loaded."""
        return Kernel, (self.name, self.dotted, self.marker, self.loose)

    @functools.cached_property
    def spec(self) -> ModuleSpec:
        """Where the kernel module is: a file beside the marker, or what an import finds, also in a zip archive.

        Raises:
            Unavailable: it does not exist, or the class was loaded by ``torch.package``.
        """
        if self.marker and any(part.startswith("<torch_package_") for part in self.marker.parts):
            raise Unavailable(
                "torch.package renames classes, and kernels are verified for classes by name",
                "import the project's own files to run its kernels",
            )
        beside = self._beside()
        if beside is not None and beside.is_file():
            # Several folders may each have a `_triton`, so the name is derived from the path.
            name = _BESIDE + hashlib.sha256(str(beside).encode()).hexdigest()[:12]
            spec = importlib.util.spec_from_file_location(name, beside)
        else:
            try:
                spec = importlib.util.find_spec(self.dotted)
            except Exception:  # finding it imports the user's packages above it
                spec = None
        if spec is None or spec.origin is None:
            raise Unavailable(
                f"there is no module {self.dotted}",
                "apply its patch again, or remove kernel= from the marker",
            )
        return spec

    @functools.cached_property
    def source(self) -> str:
        """The kernel module's text, with ``\\n`` at the end of each line.

        Raises:
            Unavailable: it does not exist, or only its bytecode does.
        """
        try:
            text = cast(InspectLoader, self.spec.loader).get_source(self.spec.name)
        except (AttributeError, ImportError, SyntaxError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self.spec.origin} is not a kernel module ({error})", AGAIN) from None
        if text is None:
            missing = f"{self.spec.origin} has no source, which Triton compiles"
            raise Unavailable(missing, "deploy the .py file of the kernel module too")
        return text

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
            return read_supports(self.source)
        except KernelModuleError as error:
            raise Unavailable(f"{self.spec.origin} is not a kernel module ({error})", AGAIN) from None

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
            failed = f"{self.spec.origin} fails to import ({type(error).__name__}: {error})"
            raise Unavailable(failed, "fix it, or remove kernel= from the marker") from error

    def _import(self) -> Any:
        name, loader = self.spec.name, self.spec.loader
        if not name.startswith(_BESIDE):
            return importlib.import_module(name)
        assert loader is not None  # it gave us the source
        with LOADING:
            if name not in sys.modules:
                module = sys.modules[name] = importlib.util.module_from_spec(self.spec)
                try:
                    loader.exec_module(module)
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

        That is known only if the marker's file has the same place in the project as then, not in an installed wheel
        or an archive.
        """
        header = _HEADER.match(self.source)
        if header is None or self.marker is None or not self.marker.is_file():
            return False
        path, _, name = header["target"].partition("::")
        if not self.marker.as_posix().endswith(f"/{path}"):
            return False
        root = Path(self.marker.as_posix().removesuffix(path))

        from kernelllm_runtime.source.resolve import ProjectSources
        from kernelllm_runtime.source.scan import earlier_hash, scan_file

        project = ProjectSources(root)
        targets = scan_file(self.marker, root, project=project).targets
        found = [target for target in targets if target.name == name]
        # An earlier version's hash is as good: it covers the place of files as well.
        return all(header["hash"] not in (t.source_hash, earlier_hash(project, t)) for t in found)
