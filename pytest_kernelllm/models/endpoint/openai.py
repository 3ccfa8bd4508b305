"""OpenAI's ``/v1/completions`` and ``/v1/chat/completions`` as implemented by vLLM, SGLang, llama.cpp, providers and others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pytest_kernelllm.models.endpoint.wire import Piece, number
from pytest_kernelllm.models.protocol import Prompt, Sampling, conversation, text_of
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

CALLED_A_TOOL = "the model called a tool, and none was offered"
REFUSED = "the model refuses to answer"
FILTERED = "the server's content filter stopped the answer"

_OPTIONAL = (
    "max_output_tokens",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stream_options",
    "store",
)
"""Parameters that a request may do without."""

_UNKNOWN = re.compile(
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
    """Completions or conversations on one server. No tools are offered."""

    url: str
    model: str
    """Empty: the server has only one, and requests do not name it."""
    chats: bool
    dialect: Dialect = "other"
    prices: Prices | None = None
    left_out: frozenset[str] = frozenset()
    """Parameters that the server does not take."""

    def body(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Returns the body with every value, including those that switch something off.

        Servers replace missing values by their own defaults (llama.cpp: top_k 40, min_p 0.05) or by those of the
        model's repository (vLLM, SGLang).
        """
        # OpenAI's newer name includes reasoning, and its newer models refuse the older one. Local servers know that.
        newer = self.chats and self.dialect == "other" and "max_completion_tokens" not in self.left_out
        limit = "max_completion_tokens" if newer else "max_tokens"
        body = {"model": self.model} if self.model else {}
        body |= self._prompt(prompt) | {"seed": seed, "stream": True, limit: sampling.max_new_tokens}
        body |= self._drawing(sampling)
        return {name: value for name, value in body.items() if name not in self.left_out}

    def pieces(self, event: Any) -> list[Piece]:
        """Returns text, at the end why it ended, and token counts if present.

        Raises:
            Fault: the event reports an error, or does not follow the protocol.
        """
        try:
            pieces = list(self._read(event))
            if not all(isinstance(text, str) for each in pieces for text in (each.text, each.reasoning)):
                raise TypeError("a text is of another type")
            return pieces
        except (TypeError, KeyError, ValueError, AttributeError, IndexError):
            raise Fault("sent JSON that does not follow its protocol", retryable=True) from None

    def _read(self, event: Any) -> Iterator[Piece]:
        if event.get("error"):
            said = what_it_says(json.dumps(event))
            raise Fault(f"failed in the middle of an answer ({said})", retryable=True)
        for choice in event.get("choices") or ():
            if number(choice, "index") == 0:
                yield (
                    _spoken(choice) if self.chats else Piece(choice.get("text") or "", finish=_finish(choice))
                )
        usage = event.get("usage") or {}
        tokens, prompt_tokens = number(usage, "completion_tokens"), number(usage, "prompt_tokens")
        if usage:
            cost = self._cost(usage, prompt_tokens, tokens)
            yield Piece(tokens=tokens, prompt_tokens=prompt_tokens, cost=cost)

    def without(self, reason: str, body: Mapping[str, Any]) -> tuple[Self, str] | None:
        """Returns this protocol without the parameter that a server does not take, and that parameter's name."""
        found = re.search(rf"\b({'|'.join(_OPTIONAL)})\b", reason) if _UNKNOWN.search(reason) else None
        if not found or found[1] not in body:
            return None
        return replace(self, left_out=self.left_out | {found[1]}), found[1]

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if not self.chats:
            return {"prompt": text_of(prompt)}
        return {"messages": conversation(prompt)}

    def _drawing(self, sampling: Sampling) -> dict[str, Any]:
        """Returns how tokens are drawn, and that they are to be counted."""
        if self.dialect == "transformers":
            # It refuses unknown fields, and samples only with a complete configuration.
            names = ("temperature", "top_p", "top_k") if sampling.temperature else ()
            drawing: dict[str, Any] = {name: getattr(sampling, name) for name in names}
            drawing |= {"do_sample": bool(names), "max_new_tokens": sampling.max_new_tokens}
            return {"generation_config": json.dumps(drawing)}
        drawing = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if self.dialect == "tgi" and sampling.top_p == 1:  # it refuses values that switch something off
            del drawing["top_p"]
        if self.dialect in ("vllm", "sglang", "llamacpp"):
            off = 0 if self.dialect == "llamacpp" else -1
            drawing |= {"top_k": sampling.top_k or off, "min_p": 0.0}
        drawing |= {"top_k": sampling.top_k} if self.dialect == "other" and sampling.top_k else {}
        return drawing | {"stream_options": {"include_usage": True}}

    def _cost(self, usage: Mapping[str, Any], prompt_tokens: int, tokens: int) -> float | None:
        stated = usage.get("cost")  # OpenRouter, in US dollars
        if isinstance(stated, int | float) and not isinstance(stated, bool) and stated >= 0:
            return float(stated)
        if self.prices is None or not tokens:
            return None
        return self.prices.prompt * prompt_tokens + self.prices.answer * tokens


def _finish(choice: Mapping[str, Any]) -> Literal["length", "stop"] | None:
    finish = choice.get("finish_reason")
    return None if finish is None else "length" if finish == "length" else "stop"


def _spoken(choice: Mapping[str, Any]) -> Piece:
    """Reads a part of a conversation's next turn."""
    message = choice.get("delta") or choice.get("message") or {}
    text, reasoning = _texts(message.get("content"))
    reasoning = message.get("reasoning_content") or message.get("reasoning") or reasoning
    note = _note(message, choice.get("finish_reason"))
    return Piece(text=text, reasoning=reasoning, finish=_finish(choice), note=note)


def _texts(content: Any) -> tuple[str, str]:
    """Returns text and reasoning of a message's content, which some providers give in parts."""
    if not isinstance(content, list):
        return content or "", ""
    parts = [part for part in content if isinstance(part, dict)]
    text = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    thoughts = (_texts(part.get("thinking"))[0] for part in parts if part.get("type") == "thinking")
    return text, "".join(thoughts)


def _note(message: Mapping[str, Any], finish: Any) -> str:
    if message.get("tool_calls") or message.get("function_call") or finish in ("tool_calls", "function_call"):
        return CALLED_A_TOOL
    if message.get("refusal"):
        return REFUSED
    return FILTERED if finish == "content_filter" else ""
