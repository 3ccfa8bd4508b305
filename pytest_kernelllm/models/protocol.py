"""What a language model is to the rest of the code: prompts in, texts out, many at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_kernelllm.generate.protocol import GenerateError

Finish = Literal["stop", "length", "failed"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The defaults are those of KernelLLM's published pass@k (``PUBLISHED``)."""

    temperature: float = 1.0
    """0 takes the likeliest token every time."""
    top_p: float = 0.97
    """Tokens are drawn from the likeliest ones whose probabilities add up to this; 1 turns it off."""
    top_k: int = 0
    """Tokens are drawn from this many likeliest ones; 0 turns it off."""
    max_new_tokens: int = 2048
    seed: int = 0
    """Sample ``i`` of a prompt is drawn under a seed made of this one and ``i``, where the model can be seeded."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn.

        Raises:
            GenerateError: a value is out of its range.
        """
        for name, fine, expected in (
            ("temperature", 0 <= self.temperature < math.inf, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
        ):
            if not fine:
                raise GenerateError(f"`{name}` cannot be {getattr(self, name)}; it is {expected}.")

    @property
    def key(self) -> str:
        """Everything that changes what is drawn, in one line."""
        return (
            f"t={self.temperature:g} p={self.top_p:g} k={self.top_k} n={self.max_new_tokens} seed={self.seed}"
        )


PUBLISHED = Sampling()
"""Under which KernelLLM's pass@k was published."""

SCRIPT = Sampling(temperature=0.6, top_p=0.95)
"""What KernelLLM's own script uses unless told otherwise."""

PRESETS = {"published": PUBLISHED, "script": SCRIPT}


@dataclass(frozen=True)
class Ask:
    """Samples wanted of one prompt."""

    prompt: str
    indices: tuple[int, ...]
    """Which samples: each index has a seed of its own, so that asking for more later repeats nothing."""


@dataclass(frozen=True)
class Answer:
    """One sample of one prompt."""

    ask: int
    """Position of the prompt among those asked."""
    index: int
    text: str
    """Without the prompt and without the end-of-text token."""
    tokens: int = 0
    """New tokens, those that were thrown away at the end included; 0 where the server does not say."""
    prompt_tokens: int = 0
    seconds: float = 0.0
    """From the moment work on this sample began until it was there."""
    finish: Finish = "stop"
    """``length``: cut off at ``max_new_tokens``. ``failed``: ``text`` is empty or partial and ``note`` says why."""
    note: str = ""
    cost: float | None = None
    """US dollars: of a server billed by the hour, the time since the answer before; None where nobody says."""


class LanguageModel(Protocol):
    """A model that continues text. Raw completion: no chat template is ever applied."""

    name: str
    """What people call it: ``facebook/KernelLLM``, also behind an endpoint where that is known."""

    @property
    def revision(self) -> str:
        """Commit hash, as far as it is known; for the record."""

    def identity(self) -> str:
        """Model and revision, as far as they can be known without torch and without the network."""

    def template(self) -> str | None:
        """The prompt template that the model's own repository holds (one ``{}`` for the code), or None."""

    def too_long(self, prompt: str, sampling: Sampling) -> str | None:
        """Why a prompt leaves no room for an answer, by how many tokens; or None: it fits, or nobody knows.

        Raises:
            GenerateError: the model cannot be had at all.
        """

    def answers(self, asks: Sequence[Ask], sampling: Sampling) -> Iterator[Answer]:
        """Yield every sample asked for, in whatever order they get ready; failed ones too.

        Closing the iterator ends the work.

        Raises:
            GenerateError: nothing can be had from this model: it is missing, refuses the token, does not fit…
        """

    def stream(self, prompt: str, sampling: Sampling, index: int = 0) -> Iterator[str]:
        """Yield one sample piece by piece as it is written; closing the iterator ends the work.

        Raises:
            GenerateError: as for ``answers``, and where the one sample fails.
        """

    def release(self) -> None:
        """Give back memory on the GPU until the next call."""

    def stop(self) -> None:
        """Have running ``answers`` raise ``GenerateError`` soon, for good; called from another thread."""
