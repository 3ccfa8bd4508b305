"""The corpus on disk: what each candidate does, and which rule must catch it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kernelllm_judge.rules.catalog import NAMES

from .edits import Edit, Texts, read_edits

HERE = Path(__file__).parent
SUBJECTS = HERE / "subjects"

_FIELDS = {
    "honest": ({"style", "device"}, {"style"}),
    "fenced": ({"trick", "proof", "device"}, {"trick", "proof"}),
    "cheats": (
        {"family", "trick", "rule", "only static check", "static check", "device", "proof"},
        {"family", "trick"},
    ),
}
"""Fields that an entry may have, and those that it must have, by folder."""


_PROBLEM = """

[_draw, *_] = Model.__kernelllm_options__.inputs.values()


def get_inputs():
    drawn = _draw(**LARGE)
    return [drawn] if isinstance(drawn, torch.Tensor) else list(drawn)


def get_init_inputs():
    return list(Model.__kernelllm_options__.init)
"""


@dataclass(frozen=True)
class Entry:
    """One candidate."""

    kind: Literal["honest", "fenced", "cheat"]
    """``fenced`` ones are right in every judged case and wrong for a module in another state."""
    subject: str
    """The name of a file or of an edit in ``subjects/``."""
    name: str
    """``<subject>__<trick or style>``."""
    text: str
    story: str
    """What it does, in a sentence."""
    family: str = ""
    """Which kind of cheat it is; empty for honest ones."""
    rules: tuple[str, ...] = ()
    """The rules that may catch it without the static check: one, or up to three where each is right. Empty for honest ones."""
    refused_statically: bool = False
    """Whether the static check must refuse it."""
    only_static_check: str = ""
    """Why nothing but the static check can, where that is so."""
    device: Literal["any", "cpu", "cuda"] = "any"
    """Where it can be judged; ``cpu`` if only the sizes that are asked there fence it."""
    proof: str = ""
    """Expression for a call that shows what it is about, see ``dispatch``."""

    @property
    def escapes(self) -> bool:
        """Whether it attacks what is outside the worker, so that only the operating system stops it."""
        return self.family == "escape"

    def runs_on(self, device: str) -> bool:
        """Whether it can run on this device (``cpu`` or ``cuda``)."""
        return self.device in ("any", device)


def load(pattern: str = "*") -> list[Entry]:
    """The entries whose names match a shell pattern: honest ones, fenced ones, cheats.

    Raises:
        ValueError: an entry's fields are incomplete or name no rule, or an edit does not fit; the text says which.
    """
    subjects = read_subjects()
    edits = {folder: _expanded(_read_folder(HERE / folder), subjects) for folder in _FIELDS}
    texts = Texts((HERE / "honest").glob("*__*.py"), (edit for each in edits.values() for edit in each))
    fields = {folder: {edit.name: edit.fields for edit in each} for folder, each in edits.items()}
    fields["honest"] |= {name: _header(texts[name]) for name in texts.files}
    return [
        _entry(name, folder, found[name], texts[name], subjects)
        for folder, found in fields.items()
        for name in sorted(found)
        if fnmatch.fnmatch(name, pattern)
    ]


def read_subjects() -> Texts:
    """Returns the modules that entries replace: a file each, or an edit where a value is kept in another place only."""
    return Texts(SUBJECTS.glob("*.py"), _read_folder(SUBJECTS))


def as_problem(subject: str) -> str:
    """Returns a subject's text as a problem in KernelBench's form, with the large sizes."""
    return read_subjects()[subject] + _PROBLEM


def _read_folder(folder: Path) -> list[Edit]:
    return [edit for file in sorted(folder.glob("*.diff")) for edit in read_edits(file)]


def _expanded(edits: list[Edit], subjects: Texts) -> list[Edit]:
    """Gives an entry for ``kept_*`` to each such subject that has none of that name."""
    found = {edit.name: edit for edit in edits if "*" not in edit.name}
    for edit in edits:
        pattern, _, trick = edit.name.partition("__")
        if "*" in pattern:
            for subject in fnmatch.filter([*subjects.files, *subjects.edits], pattern):
                found.setdefault(f"{subject}__{trick}", replace(edit, name=f"{subject}__{trick}"))
    return list(found.values())


def _header(text: str) -> Mapping[str, str]:
    """Returns the fields of a file, from the comment in its first line."""
    key, _, value = text.partition("\n")[0].removeprefix("# ").partition(": ")
    return {key: value}


def _entry(name: str, folder: str, fields: Mapping[str, str], text: str, subjects: Texts) -> Entry:
    subject = name.partition("__")[0]
    allowed, needed = _FIELDS[folder]
    if not needed <= set(fields) <= allowed:
        raise ValueError(f"{name}: it has the fields {sorted(fields)}")
    if subject not in subjects.files and subject not in subjects.edits:
        raise ValueError(f"{name}: it has no subject")
    device: Literal["any", "cpu", "cuda"] = "any"
    if (named := fields.get("device", device)) in ("cpu", "cuda"):
        device = named
    if folder == "honest":
        return Entry("honest", subject, name, text, fields["style"], device=device)
    proof = fields.get("proof", "")
    if folder == "fenced":
        return Entry("fenced", subject, name, text, fields["trick"], device=device, proof=proof)
    rules = tuple(rule.strip() for rule in fields.get("rule", "").split("|") if rule.strip())
    excuse = fields.get("only static check", "")
    if bool(rules) == bool(excuse) or len(rules) > 3 or set(rules) - NAMES - {"static check"}:
        raise ValueError(f"{name}: it must name one to three rules, or say why only the static check can")
    refused_statically = bool(excuse) or fields.get("static check") == "yes"
    return Entry(
        "cheat",
        subject,
        name,
        text,
        fields["trick"],
        fields["family"],
        rules,
        refused_statically,
        excuse,
        device,
        proof,
    )
