"""What can go wrong with one request, in one clause that a person understands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

from pytest_kernelllm.web.answers import retry_after, what_it_says


class Fault(Exception):
    """A request that brought nothing. ``reason`` goes on from "The endpoint …" and holds no secret."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        again: bool = False,
        everything: bool = False,
        asleep: bool = False,
        pause: float | None = None,
    ) -> None:
        """Say what happened; the attributes' comments say what the flags mean."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        """The HTTP status; 0 where there was none."""
        self.again = again
        """Another try may help."""
        self.everything = everything
        """Every other request would meet the same."""
        self.asleep = asleep
        """The server is on its way up."""
        self.pause = pause
        """Seconds after which the server wants to be asked again."""

    def given_up(self, why: str) -> Fault:
        """This fault as the last word."""
        return Fault(f"{self.reason} ({why})", status=self.status, everything=self.everything or self.asleep)


TOO_LONG = re.compile(
    r"tokens.{0,20}max_new_tokens.{0,40}?<=? ?(\d+)|maximum (?:context|input) length (?:is|of) (\d+)"
    r"|context size \((\d+) tokens\)|`inputs` must have less than (\d+) tokens",
    re.IGNORECASE | re.DOTALL,
)
"""How TGI, vLLM, SGLang and llama.cpp say that prompt and answer do not fit."""

_NO_MODEL = re.compile(
    r"model.{0,200}(does not exist|not found|not exist)|is pinned to", re.IGNORECASE | re.DOTALL
)


def of_response(asked: str, status: int, headers: Mapping[str, str], body: str, had_token: bool) -> Fault:
    """The fault in an answer that is no success.

    Args:
        asked: method and path, ``POST /v1/completions``.
        status: HTTP status, not 2xx.
        headers: of the answer, names in lower case.
        body: its text, secrets already removed.
        had_token: whether a token was sent.
    """
    said = what_it_says(body)
    code = f"{status}: {said}" if said else f"{status} {_phrase(status)}".strip()
    pause = retry_after(headers.get("retry-after", ""))
    if status == 401 or (status == 403 and not had_token):
        if had_token:
            return Fault(
                f"refused the token ({code}); give one that may use it", status=status, everything=True
            )
        advice = "set KERNELLLM_ENDPOINT_TOKEN, or for Hugging Face HF_TOKEN or `hf auth login`"
        return Fault(f"wants a token ({code}): {advice}", status=status, everything=True)
    if status in (402, 403):
        wants = "wants to be paid" if status == 402 else "does not let this token in"
        return Fault(f"{wants} ({code})", status=status, everything=True)
    if too_long := TOO_LONG.search(said):
        most = next(number for number in too_long.groups() if number)
        return Fault(
            f"takes no more than {most} tokens, and prompt and answer are longer ({code})", status=status
        )
    if status == 503:
        return Fault(f"is not ready ({code})", status=status, again=True, asleep=True, pause=pause)
    if status == 429:
        return Fault(f"is asked too often ({code})", status=status, again=True, pause=pause)
    if status == 408 or status >= 500:
        return Fault(f"failed at {asked} ({code})", status=status, again=True, pause=pause)
    if asked.startswith("POST") and (status in (404, 405) or _NO_MODEL.search(said)):
        return Fault(f"has no such route or model: {asked} ({code})", status=status, everything=True)
    return Fault(f"refused {asked} ({code})", status=status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
