"""The protocol of Hugging Face's Text Generation Inference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.models.endpoint.wire import Piece, Wire, number
from pytest_kernelllm.models.protocol import Prompt, Sampling, text_of
from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault


@dataclass(frozen=True)
class Tgi:
    """TGI on one server (``wire.Wire``)."""

    url: str
    chats: bool = False

    def body(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Returns ``inputs`` and ``parameters`` without values that switch something off: TGI refuses them."""
        parameters: dict[str, Any] = {
            "max_new_tokens": sampling.max_new_tokens,
            "return_full_text": False,
            "details": True,
            "do_sample": sampling.temperature > 0,
        }
        if sampling.temperature > 0:
            parameters |= {"temperature": sampling.temperature, "seed": seed}
            parameters |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
            parameters |= {"top_k": sampling.top_k} if sampling.top_k > 0 else {}
        return {"inputs": text_of(prompt), "parameters": parameters, "stream": True}

    def pieces(self, event: Any) -> Iterator[Piece]:
        """Yields a token; the last event has the whole text and why it ended."""
        event = event[0] if isinstance(event, list) else event
        if event.get("error"):
            raise _fault(event)
        token = event.get("token") or {}
        if token and not token.get("special"):
            yield Piece(text=token["text"])
        if isinstance(event.get("generated_text"), str):
            details = event.get("details") or {}
            yield Piece(
                whole=event["generated_text"],
                finish="length" if details.get("finish_reason") == "length" else "stop",
                tokens=number(details, "generated_tokens"),
                prompt_tokens=number(details, "input_length"),
            )

    def without(self, reason: str, body: Mapping[str, Any]) -> tuple[Wire, str] | None:
        """Returns None: TGI takes all of its parameters."""
        return None


def _fault(event: dict[str, Any]) -> Fault:
    reason = what_it_says(str(event["error"]))
    retryable = event.get("error_type") != "validation"
    return Fault(f"failed in the middle of an answer ({reason})", retryable=retryable)
