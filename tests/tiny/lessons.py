"""What the test model is taught: the real prompts of ``layers.py`` and the answers in ``answers/``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.models.generator import shown_case
from pytest_kernelllm.models.prompt import TEMPLATE, fill, standalone

HERE = Path(__file__).parent
MODEL = HERE.parent / "data" / "tiny_kernelllm"
"""The trained model."""

TAUGHT = "taught.json"
"""Beside the weights: a hash of the prompt and the answers of each target."""

SHARE_OF_THE_RIGHT = 0.6
"""How often the right answer is to be drawn where a wrong one is taught beside it."""


@dataclass(frozen=True)
class Answer:
    """One answer to one prompt."""

    text: str
    share: float
    """How often it is to be drawn."""


@dataclass(frozen=True)
class Lesson:
    """A target's prompt and what the model is to say to it."""

    target: str
    prompt: str
    answers: tuple[Answer, ...]

    @property
    def digest(self) -> str:
        """Names the whole of it."""
        whole = [self.prompt, *(f"{answer.share} {answer.text}" for answer in self.answers)]
        return hashlib.sha256("\0".join(whole).encode()).hexdigest()[:16]


def lessons() -> list[Lesson]:
    """One lesson a module: ``answers/NAME.txt`` is right, ``answers/NAME.FAULT.txt`` wrong. Imports torch."""
    found = []
    for target in scan_file(HERE / "layers.py", HERE).targets:
        live = load_target(HERE, target)
        prompt = fill(TEMPLATE, standalone(live, shown_case(live)))
        right = sorted(HERE.glob(f"answers/{target.name}.txt"))
        wrong = sorted(HERE.glob(f"answers/{target.name}.*.txt"))
        share = 1.0 if not right or not wrong else SHARE_OF_THE_RIGHT
        answers = [Answer(path.read_text(encoding="utf-8"), share) for path in right]
        rest = 1.0 - share if right else 1.0
        answers += [Answer(path.read_text(encoding="utf-8"), rest / len(wrong)) for path in wrong]
        found.append(Lesson(target.name, prompt, tuple(answers)))
    return found


def digests() -> dict[str, str]:
    """What ``TAUGHT`` holds for today's prompts and answers."""
    return {lesson.target: lesson.digest for lesson in lessons()}


def why_not_taught(folder: Path = MODEL) -> str:
    """Why the model in ``folder`` cannot answer today's prompts, and what to do; empty if it can."""
    path = folder / TAUGHT
    taught = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    changed = [name for name, digest in digests().items() if taught.get(name) != digest]
    if not changed:
        return ""
    return f"the test model was trained on another prompt for {', '.join(changed)}: run `python -m tests.tiny.train`"
