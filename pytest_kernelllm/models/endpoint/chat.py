"""OpenAI's ``/v1/chat/completions``, which nearly every provider has. No tools are offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.models.endpoint.openai import OpenAi
from pytest_kernelllm.models.endpoint.wire import Piece, number
from pytest_kernelllm.models.protocol import Prompt


@dataclass(frozen=True)
class Chat(OpenAi):
    """Conversations on one server (``wire.Wire``)."""

    @property
    def chats(self) -> bool:
        """Whether prompts are conversations."""
        return True

    def count(self, prompt: Prompt) -> tuple[str, dict[str, Any]] | None:
        """Only vLLM counts a conversation's tokens, chat template included."""
        if self.dialect != "vllm":
            return None
        return self.tokenize, {"model": self.model} | self._prompt(prompt)

    @property
    def _limit(self) -> str:
        """OpenAI's newer name includes reasoning, and its newer models refuse the older one. Local servers know that."""
        newer = self.dialect == "other" and "max_completion_tokens" not in self.left_out
        return "max_completion_tokens" if newer else "max_tokens"

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if isinstance(prompt, str):
            return {"messages": [{"role": "user", "content": prompt}]}
        return {"messages": [{"role": message.role, "content": message.text} for message in prompt]}

    def _piece(self, choice: Mapping[str, Any]) -> Piece:
        message = choice.get("delta") or choice.get("message") or {}
        finish = choice.get("finish_reason")
        text, reasoning = _texts(message.get("content"))
        return Piece(
            choice=number(choice, "index"),
            text=text,
            reasoning=message.get("reasoning_content") or message.get("reasoning") or reasoning,
            finish=None if finish is None else "length" if finish == "length" else "stop",
            note=_note(message, finish),
        )


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
        return "the model called a tool, and none was offered"
    if message.get("refusal"):
        return "the model refuses to answer"
    return "the server's content filter stopped the answer" if finish == "content_filter" else ""
