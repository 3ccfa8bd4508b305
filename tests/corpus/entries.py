"""The corpus on disk: what each candidate does, and which rule must catch it."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelllm_judge.rules.catalog import NAMES

HERE = Path(__file__).parent
SUBJECTS = HERE / "subjects"

_HEADER = re.compile(r"# ([a-z ]+): (.+)")
_HEADERS = {
    "honest": ({"style"}, {"style"}),
    "fenced": ({"trick", "proof", "device"}, {"trick", "proof"}),
    "cheats": (
        {"family", "trick", "rule", "only static check", "static check", "device", "proof"},
        {"family", "trick"},
    ),
}
"""Headers that an entry may have, and those that it must have, by folder."""


@dataclass(frozen=True)
class Entry:
    """One candidate."""

    kind: Literal["honest", "fenced", "cheat"]
    """``fenced`` ones are right in every judged case and wrong for a module in another state."""
    subject: str
    """Stem of the file in ``subjects/``."""
    name: str
    """Stem of its own file: ``<subject>__<trick or style>``."""
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
        ValueError: an entry's header is incomplete or names no rule; the text says which.
    """
    kinds = ("honest", "fenced", "cheats")
    files = [file for kind in kinds for file in sorted((HERE / kind).glob("*__*.py"))]
    return [_entry(file) for file in files if fnmatch.fnmatch(file.stem, pattern)]


def _entry(file: Path) -> Entry:
    text = file.read_text(encoding="utf-8")
    header: dict[str, str] = {}
    for line in text.splitlines():
        if not (found := _HEADER.fullmatch(line)):
            break
        header[found[1]] = found[2].strip()
    subject = file.stem.partition("__")[0]
    kind = file.parent.name
    allowed, needed = _HEADERS[kind]
    if needed - set(header) or set(header) - allowed or not (SUBJECTS / f"{subject}.py").is_file():
        raise ValueError(f"{file.name}: its header is {sorted(header)}, or it has no subject")
    if kind == "honest":
        return Entry("honest", subject, file.stem, text, header["style"])
    proof = header.get("proof", "")
    if proof.startswith("none, "):  # and why, for those who read the entry
        proof = ""
    device: Literal["any", "cpu", "cuda"] = "any"
    if (named := header.get("device")) == "cuda" or (named == "cpu" and kind == "fenced"):
        device = named
    if kind == "fenced":
        return Entry("fenced", subject, file.stem, text, header["trick"], device=device, proof=proof)
    rules = tuple(rule.strip() for rule in header.get("rule", "").split("|") if rule.strip())
    excuse = header.get("only static check", "")
    if bool(rules) == bool(excuse) or len(rules) > 3 or set(rules) - NAMES - {"static check"}:
        raise ValueError(
            f"{file.name}: it must name one to three rules, or say why only the static check can"
        )
    refused_statically = bool(excuse) or header.get("static check") == "yes"
    return Entry(
        "cheat",
        subject,
        file.stem,
        text,
        header["trick"],
        header["family"],
        rules,
        refused_statically,
        excuse,
        device,
        proof,
    )
