"""The part of GitHub's REST API that suggestions need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from pytest_kernelllm.suggest.github.errors import ApiError
from pytest_kernelllm.web.answers import retry_after, what_it_says
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import AsyncClock, RequestLimits, Retry, SystemClock
from pytest_kernelllm.web.secret import Secret

T = TypeVar("T")

LIMITS = RequestLimits(tries=5, total=900.0, first_pause=2.0, longest_pause=60.0, idle=60.0)
MOST_PAGES = 50

_HEADERS = {"x-github-api-version": "2022-11-28"}
_RATE_LIMITED = (403, 429)


class GitHub:
    """The API for one repository: its methods return GitHub's JSON and raise ``ApiError``."""

    def __init__(self, api: str, repository: str, token: Secret, clock: AsyncClock | None = None) -> None:
        """Prepares; sends nothing.

        Args:
            api: ``https://api.github.com``, or ``https://HOST/api/v3`` of a GitHub Enterprise Server.
            token: sent to ``api`` and nowhere else.
        """
        self._api = api
        self._root = f"{api.rstrip('/')}/repos/{repository}/"
        self._token = token
        self._retry = Retry(LIMITS, clock or SystemClock())

    def pulls(self, head: str, *, state: str, base: str | None = None) -> list[dict[str, Any]]:
        """Pull requests from a branch (``owner:branch``), newest first. ``state``: open, closed, all."""
        query = {"head": head, "state": state, "sort": "created", "direction": "desc"}
        return self._list("pulls", {**query, **({"base": base} if base else {})})

    def open_pull(self, *, title: str, head: str, base: str, body: str) -> dict[str, Any]:
        """Open a pull request from one branch of the repository to another."""
        return self._write("POST", "pulls", {"title": title, "head": head, "base": base, "body": body})

    def update_pull(self, number: int, *, body: str, state: str | None = None) -> dict[str, Any]:
        """Change a pull request's text, and close it with ``state="closed"``."""
        return self._write("PATCH", f"pulls/{number}", {"body": body, **({"state": state} if state else {})})

    def comments(self, number: int) -> list[dict[str, Any]]:
        """The comments on a pull request, oldest first."""
        return self._list(f"issues/{number}/comments")

    def add_comment(self, number: int, *, body: str) -> dict[str, Any]:
        """Comment on a pull request."""
        return self._write("POST", f"issues/{number}/comments", {"body": body})

    def update_comment(self, comment: int, *, body: str) -> dict[str, Any]:
        """Change a comment's text."""
        return self._write("PATCH", f"issues/comments/{comment}", {"body": body})

    # ------------------------------------------------------------------ requests

    def _list(self, path: str, query: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        async def read(http: Http) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            url = f"{self._root}{path}?{urlencode({**(query or {}), 'per_page': '100'})}"
            for _ in range(MOST_PAGES):
                items, following = await self._retry(partial(http.page, "GET", url))
                found += _of(list, items, path)
                if following is None:
                    return found
                url = following
            raise Fault(f"has more than {MOST_PAGES} pages of {path}")

        return self._run(read)

    def _write(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        async def write(http: Http) -> dict[str, Any]:
            async def attempt() -> Any:
                try:
                    return await http.ask(method, self._root + path, content)
                except Fault as fault:
                    # What may have arrived is not posted a second time.
                    if method == "POST" and not fault.unsent and fault.status not in _RATE_LIMITED:
                        fault.retryable = False
                    raise

            found: dict[str, Any] = _of(dict, await self._retry(attempt), path)
            return found

        return self._run(write)

    def _run(self, work: Callable[[Http], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with Http(self._api, _refusal, LIMITS, self._token, headers=_HEADERS) as http:
                return await work(http)

        try:
            return asyncio.run(connected())
        except Fault as fault:
            error = ApiError(fault.status, f"GitHub {fault.reason}.")
        raise error


def _refusal(asked: str, status: int, headers: Mapping[str, str], body: str) -> Fault:
    reason = f"answered {asked} with {status} ({what_it_says(body)})"
    if status not in _RATE_LIMITED:
        return Fault(reason, status=status, retryable=status >= 500)
    pause = retry_after(headers.get("retry-after", ""))
    reset = headers.get("x-ratelimit-reset", "")
    if pause is None and headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        pause = max(0.0, float(reset) - time.time()) + 1
    if pause is None and (status == 429 or "rate limit" in body.lower()):
        pause = 60.0
    return Fault(reason, status=status, retryable=pause is not None, pause=pause)


def _of(kind: type, found: Any, path: str) -> Any:
    if not isinstance(found, kind):
        raise Fault(f"answered the request for {path} with JSON that is not a {kind.__name__}")
    return found
