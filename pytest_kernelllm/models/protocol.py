"""The interface of a language model: it takes prompts and returns texts, many at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_kernelllm.generate.protocol import GenerateError

Finish = Literal["stop", "length", "failed"]


CUT_OFF = "the answer was cut off at"
"""How the note of an answer begins that reached the limit of tokens."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; the defaults are those of KernelLLM's published pass@k (``PUBLISHED``)."""

    temperature: float = 1.0
    """0 takes the likeliest token every time."""
    top_p: float = 0.97
    """Tokens are drawn from the likeliest ones whose probabilities add up to this; 1 turns it off."""
    top_k: int = 0
    """Tokens are drawn from this many likeliest ones; 0 turns it off."""
    max_new_tokens: int = 2048
    seed: int = 0
    """Sample ``i`` of a prompt is drawn under a seed made of this one and ``i``, if the model can be seeded."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            GenerateError: a value is no number, or out of its range.
        """
        for name, whole in (
            ("temperature", False),
            ("top_p", False),
            ("top_k", True),
            ("max_new_tokens", True),
            ("seed", True),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                kind = "a whole number" if whole else "a number"
                raise GenerateError(f"`{name}` cannot be {value!r}; it must be {kind}.")
        for name, fine, expected in (
            ("temperature", 0 <= self.temperature < math.inf, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
        ):
            if not fine:
                raise GenerateError(f"`{name}` cannot be {getattr(self, name)}; it must be {expected}.")

    @property
    def key(self) -> str:
        """All values that change what is drawn, in one line."""
        return (
            f"t={self.temperature:g} p={self.top_p:g} k={self.top_k} n={self.max_new_tokens} seed={self.seed}"
        )


PUBLISHED = Sampling()
"""The sampling of KernelLLM's published pass@k."""

SCRIPT = Sampling(temperature=0.6, top_p=0.95)
"""The default sampling of KernelLLM's own script."""

PRESETS = {"published": PUBLISHED, "script": SCRIPT}


def chats_with(protocol: str, model: str) -> bool:
    """Returns whether a model behind a server is chatted with, by the setting ``protocol`` and its name.

    With ``auto``, those called KernelLLM continue a text; a model without a name is taken for KernelLLM, the default.
    """
    return protocol in ("chat", "responses") or (
        protocol == "auto" and bool(model) and "kernelllm" not in model.lower()
    )


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


Prompt = str | tuple[Message, ...]
"""Text to continue, or a conversation whose next turn is the model's."""


def text_of(prompt: Prompt) -> str:
    """Returns a prompt as people read it: a conversation with a line before each turn that names the role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in prompt)


def conversation(prompt: Prompt) -> list[dict[str, str]]:
    """Returns a prompt as OpenAI's protocols take conversations; a text is one turn of the user's."""
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    return [{"role": message.role, "content": message.text} for message in turns]


@dataclass(frozen=True)
class Ask:
    """Asks for samples of one prompt."""

    prompt: Prompt
    indices: tuple[int, ...]
    """Which samples; each index has its own seed, so that asking for more later repeats none."""


@dataclass(frozen=True)
class Answer:
    """One sample of one prompt."""

    ask: int
    """Position of the ``Ask`` that it answers."""
    index: int
    text: str
    """The text without the prompt and without the end-of-text token."""
    tokens: int = 0
    """Number of new tokens, including those that are dropped at the end; 0 if the server does not report it."""
    prompt_tokens: int = 0
    seconds: float = 0.0
    """Time from the start of work on this sample to its end."""
    finish: Finish = "stop"
    """``length`` if cut off at ``max_new_tokens``; ``failed`` if ``text`` is empty or partial, and ``note`` says why."""
    note: str = ""
    cost: float | None = None
    """Cost in US dollars; on a server billed by the hour, of the time since the answer before. None if unknown."""
    reasoning: str = ""
    """What the model thought before it answered, where the server or the model keeps that apart."""


class LanguageModel(Protocol):
    """A model that continues text, or answers in a conversation where ``takes_messages``."""

    name: str
    """The model's name, such as ``facebook/KernelLLM``, also behind an endpoint if it is known."""

    @property
    def revision(self) -> str:
        """The commit hash, if it is known."""

    def identity(self) -> str:
        """Returns model and revision, as far as they are known without torch and without the network."""

    def takes_messages(self) -> bool:
        """Returns whether prompts are conversations; a server may have to be asked.

        Raises:
            GenerateError: the model is not available.
        """

    def template(self) -> str | None:
        """Returns the prompt template in the model's repository (with one ``{}`` for the code), or None."""

    def too_long(self, prompt: Prompt, sampling: Sampling) -> str | None:
        """Says why a prompt leaves no room for an answer, and by how many tokens; None if it fits or if that is unknown.

        Raises:
            GenerateError: the model is not available.
        """

    def answers(self, asks: Sequence[Ask], sampling: Sampling) -> Iterator[Answer]:
        """Yields every requested sample as it gets ready, in any order and including failed ones.

        Closing the iterator ends the work.

        Raises:
            GenerateError: the model is not available: it is missing, rejects the token, does not fit…
        """

    def stream(self, prompt: Prompt, sampling: Sampling, index: int = 0) -> Iterator[str]:
        """Yields one sample piece by piece as it is written; closing the iterator ends the work.

        Raises:
            GenerateError: as for ``answers``, and if the sample fails.
        """

    def release(self) -> None:
        """Frees the model's GPU memory until the next call."""

    def stop(self) -> None:
        """Makes a running and every later ``answers`` raise ``GenerateError``; call it from another thread."""
