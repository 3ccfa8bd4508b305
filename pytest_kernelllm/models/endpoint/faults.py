"""Explains in one clause what an unsuccessful response of a model's server means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

from pytest_kernelllm.web.answers import retry_after, what_it_says
from pytest_kernelllm.web.faults import Fault

TOO_LONG = re.compile(
    r"tokens.{0,20}max_new_tokens.{0,40}?<=? ?(\d+)|maximum (?:context|input) length (?:is|of) (\d+)"
    r"|context size \((\d+) tokens\)|`inputs` must have less than (\d+) tokens",
    re.IGNORECASE | re.DOTALL,
)
"""How TGI, vLLM, SGLang and llama.cpp state that prompt and answer do not fit."""

_NO_MODEL = re.compile(
    r"model.{0,200}(does not exist|not found|not exist)|is pinned to", re.IGNORECASE | re.DOTALL
)


def refusal(asked: str, status: int, headers: Mapping[str, str], body: str, *, had_token: bool) -> Fault:
    """The fault that an unsuccessful response stands for."""
    reason = what_it_says(body)
    code = f"{status}: {reason}" if reason else f"{status} {_phrase(status)}".strip()
    pause = retry_after(headers.get("retry-after", ""))
    if status == 401 or (status == 403 and not had_token):
        if had_token:
            return Fault(f"refused the token ({code}); use one that has access", status=status, fatal=True)
        advice = "set KERNELLLM_ENDPOINT_TOKEN, or for Hugging Face HF_TOKEN or `hf auth login`"
        return Fault(f"requires a token ({code}): {advice}", status=status, fatal=True)
    if status == 402:
        return Fault(f"answered: payment required ({code})", status=status, fatal=True)
    if status == 403:
        return Fault(f"denies access with this token ({code})", status=status, fatal=True)
    if too_long := TOO_LONG.search(reason):
        most = next(number for number in too_long.groups() if number)
        return Fault(f"accepts at most {most} tokens for prompt and answer together ({code})", status=status)
    if status == 503:
        return Fault(f"is not ready ({code})", status=status, retryable=True, starting=True, pause=pause)
    if status == 429:
        return Fault(f"answered: rate limited ({code})", status=status, retryable=True, pause=pause)
    if status == 408 or status >= 500:
        return Fault(f"failed at {asked} ({code})", status=status, retryable=True, pause=pause)
    if asked.startswith("POST") and "chat template" in reason.lower() and status < 500:
        advice = "set `protocol` to completions"
        return Fault(f"has a model without a chat template ({code}): {advice}", status=status, fatal=True)
    if asked.startswith("POST") and (status in (404, 405) or _NO_MODEL.search(reason)):
        return Fault(f"has no such route or model: {asked} ({code})", status=status, fatal=True)
    return Fault(f"refused {asked} ({code})", status=status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
