"""OpenAI's ``/v1/responses``, which some models and servers speak alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.models.endpoint.openai import CALLED_A_TOOL, FILTERED, REFUSED, OpenAi
from pytest_kernelllm.models.endpoint.wire import Piece, number
from pytest_kernelllm.models.protocol import Prompt, Sampling, conversation
from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault

_TEXT = "response.output_text.delta"
_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_ENDS = ("response.completed", "response.incomplete")
_FAULTS = ("response.failed", "error")


@dataclass(frozen=True)
class Responses(OpenAi):
    """Conversations that the server does not keep. No tools are offered; this protocol has no seeds."""

    def body(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Returns the body of a request, without a seed."""
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        body |= {
            "input": conversation(prompt),
            "stream": True,
            "store": False,
            "max_output_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        return {name: value for name, value in body.items() if name not in self.left_out}

    def _read(self, event: Any) -> Iterator[Piece]:
        kind = event.get("type")
        if kind in _FAULTS or event.get("error"):
            said = what_it_says(json.dumps(event.get("response") or event))
            raise Fault(f"failed in the middle of an answer ({said})", retryable=True)
        if kind == _TEXT:
            yield Piece(text=event["delta"])
        elif kind in _REASONING:
            yield Piece(reasoning=event["delta"])
        elif kind == "response.output_item.done":
            yield Piece(note=_note(event["item"]))
        elif kind in _ENDS:
            yield self._end(event["response"])
        elif event.get("object") == "response":  # of a server that does not stream
            for item in event["output"]:
                yield Piece(_texts(item, "output_text"), reasoning=_texts(item, *_THOUGHTS), note=_note(item))
            yield self._end(event)

    def _end(self, response: Mapping[str, Any]) -> Piece:
        usage = response.get("usage") or {}
        tokens, prompt_tokens = number(usage, "output_tokens"), number(usage, "input_tokens")
        why = (response.get("incomplete_details") or {}).get("reason")
        return Piece(
            finish="length" if why == "max_output_tokens" else "stop",
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            cost=self._cost(usage, prompt_tokens, tokens),
            note=FILTERED if why == "content_filter" else "",
        )


_THOUGHTS = ("reasoning_text", "summary_text")


def _texts(item: Mapping[str, Any], *kinds: str) -> str:
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    return "".join(part["text"] for part in parts if part["type"] in kinds)


def _note(item: Mapping[str, Any]) -> str:
    if str(item["type"]).endswith("_call"):
        return CALLED_A_TOOL
    refused = any(part.get("type") == "refusal" for part in item.get("content") or ())
    return REFUSED if refused else ""
