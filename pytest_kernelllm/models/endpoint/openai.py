"""OpenAI's ``/v1/completions`` as implemented by vLLM, SGLang, llama.cpp, ``transformers serve`` and others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pytest_kernelllm.models.endpoint.wire import Count, Piece, number
from pytest_kernelllm.models.protocol import Sampling
from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault

Dialect = Literal["vllm", "sglang", "llamacpp", "transformers", "other"]

DIALECTS: dict[str, Dialect] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
"""By the value of ``owned_by`` in the list of models."""


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

    def body(self, prompt: str, sampling: Sampling, n: int, seed: int) -> dict[str, Any]:
        """Returns the body with every value, including those that switch something off.

        Servers replace missing values by their own defaults (llama.cpp: top_k 40, min_p 0.05) or by those of the
        model's repository (vLLM, SGLang).
        """
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        body |= {"prompt": prompt, "max_tokens": sampling.max_new_tokens, "seed": seed, "stream": True}
        body |= {"n": n} if n > 1 else {}
        if self.dialect == "transformers":
            # It refuses unknown fields, and samples only with a complete configuration.
            return body | {"generation_config": json.dumps(_generation_config(sampling))}
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if self.dialect in ("vllm", "sglang"):
            body |= {"top_k": sampling.top_k or -1, "min_p": 0.0}
            body |= {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
            return body
        body |= {"top_k": sampling.top_k, "min_p": 0.0} if self.dialect == "llamacpp" else {}
        body |= {"top_k": sampling.top_k} if self.dialect == "other" and sampling.top_k else {}
        return body | {"stream_options": {"include_usage": True}}

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
            finish = choice.get("finish_reason")
            yield Piece(
                choice=number(choice, "index"),
                text=choice.get("text") or "",
                finish=None if finish is None else "length" if finish == "length" else "stop",
                tokens=tokens if each else 0,
                prompt_tokens=prompt_tokens,
            )
        if usage and not each:
            yield Piece(choice=None, tokens=tokens, prompt_tokens=prompt_tokens)

    @property
    def counts_each(self) -> bool:
        """Whether the token count beside a sample's text is the sample's, not the request's."""
        return self.dialect in ("vllm", "sglang", "transformers")

    def count(self, prompt: str) -> tuple[str, dict[str, Any]] | None:
        """vLLM, SGLang and llama.cpp have the same route; each reads its own names in the body."""
        if not self.tokenize:
            return None
        body = {"model": self.model, "prompt": prompt, "add_special_tokens": True}
        return self.tokenize, body | {"content": prompt, "add_special": True}

    def counted(self, reply: Any) -> Count | None:
        """Reads a count, or a list with an entry per token."""
        tokens = number(reply, "count") or len(reply.get("tokens") or ())
        return Count(tokens, number(reply, "max_model_len") or self.context) if tokens else None


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
