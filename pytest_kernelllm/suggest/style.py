"""Writes files as the project's own formatter and linter want them.

A project that configures black gets black where it is installed; any other gets ruff, which reads the project's own
configuration. Nothing here changes a program: what a linter finds in a kernel is exempted in the kernel's header.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelllm_judge.core.kernel_module import digest, with_exemptions
from kernelllm_judge.core.program import UNREADABLE, parse
from pytest_kernelllm.core.git import work_tree

LINTED = "E,F,I,W,B,UP"
"""Rules that a kernel module keeps or exempts itself from, in addition to the project's."""

TIMEOUT = 60.0
"""Seconds after which a formatter has failed."""

_BLACK_HOOK = re.compile(r"^\s*-\s*id:\s*['\"]?black['\"]?\s*(?:#.*)?$", re.MULTILINE)
_CODE = re.compile(r"[A-Z]+[0-9]+")


class StyleError(RuntimeError):
    """A formatter or linter is missing or fails; the text says which, and how."""


class Style:
    """The formatter and the linter of one project, each run in a process of its own."""

    def __init__(self, root: Path) -> None:
        """Makes a style; formatter and linter run when a file needs them.

        Args:
            root: the project root; configuration is looked up from the formatted file's folder upwards.
        """
        self._root = root.resolve()
        self._known: dict[tuple[str, ...], bytes] = {}
        self.notes: list[str] = []
        """One sentence about each kernel module that could not be formatted."""

    def kernel(self, path: str, source: str, *, in_package: bool = False) -> str:
        """Returns a kernel module, formatted, and exempted in its header from the rules that it breaks.

        Args:
            path: where it will lie, relative to the project root.
            source: a kernel module with a digest. It comes back as it is, with a note, if formatting fails.
            in_package: whether its folder gets an ``__init__.py`` along with it.
        """
        try:
            text = self._formatted(path, source.encode()).decode()
            if digest(text) != digest(source):
                raise StyleError("the formatter changed the program, or cannot keep its digest")
            exempted = self._exempted(
                path, text.replace("\r\n", "\n"), self._package(path) if in_package else []
            )
            return exempted.replace("\n", "\r\n") if "\r\n" in text else exempted
        except (StyleError, *UNREADABLE) as error:
            note = f"{path} is not formatted: {error}."
            self.notes += [note] if note not in self.notes else []
            return source

    def edited(self, path: str, before: bytes, after: bytes) -> bytes:
        """Returns an edited file, formatted if it was so before the edit, and can be; else as it is."""
        try:
            if before == after or self._formatted(path, before) != before:
                return after
            new = self._formatted(path, after)
            return new if ast.dump(parse(new)) == ast.dump(parse(after)) else after
        except (StyleError, *UNREADABLE):  # also for a file that is not UTF-8
            return after

    # ------------------------------------------------------------------ formatter

    def _formatted(self, path: str, content: bytes) -> bytes:
        file = str(self._root / path)
        black = self._black
        if black is not None and importlib.util.find_spec("black") is not None:
            return self._run(["black", "--quiet", "--stdin-filename", file, "-"], content)
        options = ["--line-length", str(black["line-length"])] if black and "line-length" in black else []
        return self._run(["ruff", "format", "--quiet", *options, "--stdin-filename", file, "-"], content)

    @cached_property
    def _black(self) -> dict[str, Any] | None:
        """Black's configuration; None if the project does not use it."""
        for folder in _within_repository(self._root):
            try:
                tools = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("tool")
            except (OSError, ValueError):
                tools = None
            if isinstance(tools, dict) and isinstance(tools.get("black"), dict):
                return dict(tools["black"])
            try:
                hooks = (folder / ".pre-commit-config.yaml").read_text(encoding="utf-8")
            except (OSError, ValueError):
                hooks = ""
            if _BLACK_HOOK.search(hooks):
                return {}
        return None

    # ------------------------------------------------------------------ linter

    def _package(self, path: str) -> list[str]:
        """Options that make a folder count as a package, where other rules apply to private names."""
        if (self._root / path).with_name("__init__.py").exists():
            return []
        above = Path(path).parent.parent  # a package already; ruff passes over folders that do not exist yet
        return ["--config", f"namespace-packages = {json.dumps([str(above)], ensure_ascii=False)}"]

    def _exempted(self, path: str, source: str, options: Sequence[str]) -> str:
        source = with_exemptions(source, ())
        codes = self._codes(path, source, ["--extend-select", LINTED, *options])
        if codes:
            # Where RUF100 is on, it finds exemptions from rules that the project does not check.
            codes |= self._codes(path, with_exemptions(source, codes), options)
        return with_exemptions(source, codes)

    def _codes(self, path: str, source: str, options: Sequence[str]) -> set[str]:
        """The rules that a text breaks: those that the project checks, and by option others."""
        command = ["ruff", "check", "--quiet", "--no-cache", "--no-fix", "--exit-zero", *options]
        command += ["--output-format", "json", "--stdin-filename", str(self._root / path), "-"]
        found = json.loads(self._run(command, source.encode()))
        return {code for each in found if _CODE.fullmatch(code := each["code"] or "")}

    def _run(self, command: Sequence[str], content: bytes) -> bytes:
        """What a tool makes of a text on its standard input; the same text is never given to it twice."""
        key = (*command, content.decode(errors="surrogateescape"))
        if key not in self._known:
            self._known[key] = _output(command, content, self._root)
        return self._known[key]


def _output(command: Sequence[str], content: bytes, folder: Path) -> bytes:
    program = Path(sys.executable).with_name(command[0])
    # -P: no file of the project is taken for the tool.
    call = [str(program), *command[1:]] if program.exists() else [sys.executable, "-P", "-m", *command]
    try:
        done = subprocess.run(
            call, cwd=folder, input=content, capture_output=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StyleError(f"{command[0]} cannot run ({type(error).__name__})") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise StyleError(f"{command[0]} fails ({lines[-1].strip() if lines else done.returncode})")
    return done.stdout


def _within_repository(root: Path) -> Iterator[Path]:
    """The project root and the folders above it, up to the top of its repository."""
    folders = [root, *root.parents]
    yield from folders[: folders.index(work_tree(root) or root) + 1]
