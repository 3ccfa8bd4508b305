"""OpenAI's ``/v1/completions`` as implemented by vLLM, SGLang, llama.cpp, ``transformers serve`` and others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pytest_kernelllm.models.endpoint.wire import Count, Piece, number
from pytest_kernelllm.models.protocol import Prompt, Sampling, text_of
from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault

Dialect = Literal["vllm", "sglang", "llamacpp", "ollama", "transformers", "tgi", "other"]

DIALECTS: dict[str, Dialect] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "library": "ollama",
}
"""By the value of ``owned_by`` in the list of models."""

_OPTIONAL = (
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stream_options",
)
"""Parameters that a request may do without."""

_REFUSED = re.compile(
    r"unsupported|not support|unknown|unrecogni|unexpected|not permitted|not allowed|only the default", re.I
)
"""How servers state that they do not take a parameter."""


@dataclass(frozen=True)
class Prices:
    """What a server bills, in US dollars a token."""

    prompt: float
    answer: float


@dataclass(frozen=True)
class OpenAi:
    """Completions on one server (``wire.Wire``)."""

    url: str
    model: str
    """Empty: the server has only one, and requests do not name it."""
    dialect: Dialect = "other"
    tokenize: str = ""
    context: int = 0
    many: bool = True
    prices: Prices | None = None
    left_out: frozenset[str] = frozenset()
    """Parameters that the server does not take."""

    @property
    def chats(self) -> bool:
        """Whether prompts are conversations."""
        return False

    def body(self, prompt: Prompt, sampling: Sampling, n: int, seed: int) -> dict[str, Any]:
        """Returns the body with every value, including those that switch something off.

        Servers replace missing values by their own defaults (llama.cpp: top_k 40, min_p 0.05) or by those of the
        model's repository (vLLM, SGLang).
        """
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        body |= self._prompt(prompt) | {"seed": seed, "stream": True} | ({"n": n} if n > 1 else {})
        body |= {self._limit: sampling.max_new_tokens} | self._drawing(sampling)
        return {name: value for name, value in body.items() if name not in self.left_out}

    def pieces(self, event: Any) -> Iterator[Piece]:
        """Yields text of some samples, at the end of a sample why it ended, and token counts if present."""
        if event.get("error"):
            raise Fault(
                f"failed in the middle of an answer ({what_it_says(json.dumps(event))})", retryable=True
            )
        usage = event.get("usage") or {}
        tokens, prompt_tokens = number(usage, "completion_tokens"), number(usage, "prompt_tokens")
        choices = event.get("choices") or []
        each = len(choices) == 1 and self.counts_each
        for choice in choices:
            piece = self._piece(choice)
            yield replace(piece, tokens=tokens if each else 0, prompt_tokens=prompt_tokens)
        if usage and not each:
            cost = self._cost(usage, prompt_tokens, tokens)
            yield Piece(choice=None, tokens=tokens, prompt_tokens=prompt_tokens, cost=cost)

    @property
    def counts_each(self) -> bool:
        """Whether the token count beside a sample's text is the sample's, not the request's."""
        return self.dialect in ("vllm", "sglang", "transformers")

    def without(self, reason: str, body: Mapping[str, Any]) -> tuple[Self, str] | None:
        """Returns this protocol without the parameter that a server does not take, and that parameter's name."""
        found = re.search(rf"\b({'|'.join(_OPTIONAL)})\b", reason) if _REFUSED.search(reason) else None
        if not found or found[1] not in body:
            return None
        return replace(self, left_out=self.left_out | {found[1]}), found[1]

    def count(self, prompt: Prompt) -> tuple[str, dict[str, Any]] | None:
        """vLLM, SGLang and llama.cpp have the same route; each reads its own names in the body."""
        if not self.tokenize:
            return None
        text = text_of(prompt)
        body = {"model": self.model, "prompt": text, "add_special_tokens": True}
        return self.tokenize, body | {"content": text, "add_special": True}

    def counted(self, reply: Any) -> Count | None:
        """Reads a count, or a list with an entry per token."""
        tokens = number(reply, "count") or len(reply.get("tokens") or ())
        return Count(tokens, number(reply, "max_model_len") or self.context) if tokens else None

    @property
    def _limit(self) -> str:
        """The parameter that limits an answer's length."""
        return "max_tokens"

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        return {"prompt": text_of(prompt)}

    def _piece(self, choice: Mapping[str, Any]) -> Piece:
        finish = choice.get("finish_reason")
        return Piece(
            choice=number(choice, "index"),
            text=choice.get("text") or "",
            finish=None if finish is None else "length" if finish == "length" else "stop",
        )

    def _drawing(self, sampling: Sampling) -> dict[str, Any]:
        """Returns how tokens are drawn, and that they are to be counted."""
        if self.dialect == "transformers":
            # It refuses unknown fields, and samples only with a complete configuration.
            return {"generation_config": json.dumps(_generation_config(sampling))}
        drawing: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if self.dialect in ("vllm", "sglang"):
            counting = {"include_usage": True, "continuous_usage_stats": True}
            return drawing | {"top_k": sampling.top_k or -1, "min_p": 0.0, "stream_options": counting}
        if self.dialect == "tgi" and sampling.top_p == 1:  # it refuses values that switch something off
            del drawing["top_p"]
        drawing |= {"top_k": sampling.top_k, "min_p": 0.0} if self.dialect == "llamacpp" else {}
        drawing |= {"top_k": sampling.top_k} if self.dialect == "other" and sampling.top_k else {}
        return drawing | {"stream_options": {"include_usage": True}}

    def _cost(self, usage: Mapping[str, Any], prompt_tokens: int, tokens: int) -> float | None:
        stated = usage.get("cost")  # OpenRouter, in US dollars
        if isinstance(stated, int | float) and not isinstance(stated, bool) and stated >= 0:
            return float(stated)
        if self.prices is None or not tokens:
            return None
        return self.prices.prompt * prompt_tokens + self.prices.answer * tokens


def _generation_config(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature == 0:
        return {"do_sample": False, "max_new_tokens": sampling.max_new_tokens}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_new_tokens": sampling.max_new_tokens,
    }
