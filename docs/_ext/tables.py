"""What pages take from the code, as Markdown. Needs no Sphinx, so that tests can read it as well."""

from __future__ import annotations

import ast
import inspect
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_kernelllm.config import settings as settings_module
from pytest_kernelllm.config.options import FREQUENT, choices, options
from pytest_kernelllm.config.settings import JUDGING, LANGUAGE_MODEL, Option, Settings
from pytest_kernelllm.plugin import hooks

DOCS = Path(__file__).parents[1]
CATCH = DOCS / "_generated" / "catch.md"
"""Where ``make catch ARGS="--markdown docs/_generated/catch.md"`` writes what was seen."""

GROUPS = {
    "Who writes": ("generator", "candidates_dir", "samples", "search"),
    "The language model": tuple(options(LANGUAGE_MODEL)),
    "Judging": (*options(JUDGING), "min_speedup", "require_kernels", "require_timing"),
    "Comparing with recorded runs": ("compare", "compare_fail"),
    "Files, and what a run says": ("paths", "kernels_dir", "store", "annotations"),
}
"""Every setting, in the order of the page."""


@dataclass(frozen=True)
class Setting:
    """One field of ``Settings``, with the option that sets it."""

    name: str
    default: Any
    text: str
    option: Option | None

    def to_markdown(self) -> str:
        """An entry of a definition list, with an anchor."""
        default = "" if self.default is None else f" = {_toml(self.default)}"
        lines = [f"(setting-{self.name})=", f"`{self.name}{default}`", f": {self.text}"]
        if self.option:
            value = "" if self.option.sets is not None else f" {self.option.metavar or choices(self.name)}"
            flag = (self.option.flag or self.name).replace("_", "-")
            own = self.name in FREQUENT
            shown = f"{flag}{value}" if own else f"set {self.name}={value.strip()}"
            lines += ["", f"  Option: `--kernelllm-{shown}`"]
        return "\n".join(lines)


def all_settings() -> dict[str, Setting]:
    """The settings by name."""
    texts = _attribute_docstrings(Settings)
    return {
        field.name: Setting(field.name, field.default, texts[field.name], options().get(field.name))
        for field in fields(Settings)
    }


def settings() -> str:
    """Every setting: its default, what it does, and its option."""
    known = all_settings()
    parts = []
    for title, names in GROUPS.items():
        parts += [f"## {title}", *(known[name].to_markdown() for name in names)]
    return "\n\n".join(parts)


def pytest_options() -> str:
    """The options of pytest that are no settings, and the ini setting."""
    recorder = _Recorder()
    hooks.pytest_addoption(recorder)
    known = {
        f"--kernelllm-{(s.option.flag or s.name).replace('_', '-')}"
        for s in all_settings().values()
        if s.option
    }
    rows = [(f"`{name}`", text) for name, text in recorder.found if name.split()[0] not in known]
    return _table(("option", "meaning"), rows)


def folders(inside: str = "") -> str:
    """The folders and modules of the plugin, the ``judge`` or the ``runtime``, in the order of import-linter's layers."""
    names = {
        "": "Folders import only downwards",
        "judge": "Inside the judge, too, imports point downwards",
        "runtime": "In the runtime, too, imports point downwards",
    }
    (contract,) = (c for c in _contracts() if c["name"] == names[inside])
    rows = []
    home = home_of(inside)
    for layer in contract["layers"]:
        for part in layer.split(" | "):
            folder = home / part
            file = folder / "__init__.py" if folder.is_dir() else home / f"{part}.py"
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            first = " ".join(text.partition("\n\n")[0].split())
            rows.append((f"`{part}{'/' if folder.is_dir() else '.py'}`", first))
    return _table(("folder", "what it does"), rows)


def home_of(inside: str) -> Path:
    """The package whose parts ``folders`` lists."""
    return DOCS.parent / (f"kernelllm_{inside}" if inside else "pytest_kernelllm")


def _contracts() -> list[dict[str, Any]]:
    text = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return found


def rules() -> str:
    """The judge's rules, in the order in which they are checked."""
    from kernelllm_judge.rules.catalog import RULES

    applies = {"any": "everywhere", "cuda": "on a GPU", "cpu": "without a GPU"}
    rows = [(f"`{rule.name}`", rule.says, applies[rule.device]) for rule in RULES]
    return _table(("rule", "what holds for every accepted candidate", "applies"), rows)


def architectures() -> str:
    """The GPU architectures that kernels can be compiled for, and how far each is supported."""
    from kernelllm_judge.core.architectures import ARCHITECTURES

    return _table(("architecture", "support"), [(f"`{a.name}`", a.support) for a in ARCHITECTURES.values()])


def catch() -> str:
    """The corpus of cheats: what was seen, where the catch table was made; else what must happen."""
    if CATCH.is_file():
        return CATCH.read_text(encoding="utf-8")
    from tests.corpus.entries import load

    cheats = sorted((e for e in load() if e.kind == "cheat"), key=lambda e: (e.family, e.name))
    rows = [
        (
            e.family,
            f"`{e.name}`",
            e.story,
            " or ".join(e.rules) or f"only the static check: {e.only_static_check}",
            e.device,
        )
        for e in cheats
    ]
    return _table(("family", "candidate", "trick", "must be caught by", "device"), rows)


def schema(name: str, closed: str = "") -> str:
    """The outline of a JSON schema in ``docs/schema``, without the fields of the field ``closed``."""
    content = json.loads((DOCS / "schema" / f"{name}.json").read_text(encoding="utf-8"))
    return "```text\n" + "\n".join(_outline(content, closed)) + "\n```"


PARTS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "pytest-options": pytest_options,
    "folders": folders,
    "rules": rules,
    "architectures": architectures,
    "catch": catch,
    "schema": schema,
}
"""By name, what the directive ``generated`` can insert."""


def _outline(node: dict[str, Any], closed: str, indent: str = "") -> Iterator[str]:
    """One line a field, nested ones indented."""
    for name, field in node["properties"].items():
        yield f"{indent}{name}: {_type(field)}"
        if name != closed and (inner := _object(field)):
            yield from _outline(inner, closed, indent + "    ")


def _type(node: dict[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(_type(choice) for choice in node["anyOf"])
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        return " or ".join(json.dumps(value) for value in node["enum"])
    if node.get("type") == "array":
        if "items" in node:
            return f"list of {_type(node['items'])}"
        return f"[{', '.join(_type(item) for item in node['prefixItems'])}]"
    if isinstance(extra := node.get("additionalProperties"), dict):
        return f"object, each value {_type(extra)}"
    return str(node.get("type", "anything"))


def _object(node: dict[str, Any]) -> dict[str, Any] | None:
    """The object with named fields that a value is, may be, or holds."""
    if "properties" in node:
        return node
    inside = [*node.get("anyOf", ()), node.get("items"), node.get("additionalProperties")]
    return next((found for each in inside if isinstance(each, dict) and (found := _object(each))), None)


def _attribute_docstrings(cls: type) -> dict[str, str]:
    """The strings below a class's fields."""
    tree = ast.parse(inspect.getsource(settings_module))
    (body,) = (
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    found = {}
    for node, below in pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[ast.unparse(node.target)] = inspect.cleandoc(str(below.value.value))
    return found


class _Recorder:
    """Stands in for pytest's parser and notes what is added."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def getgroup(self, *_: str) -> _Recorder:
        return self

    def addoption(self, name: str, **rest: Any) -> None:
        self.found.append((f"{name} {rest.get('metavar') or ''}".strip(), rest["help"]))

    def addini(self, name: str, text: str, **_: Any) -> None:
        self.found.append((f"{name} (ini)", text))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
