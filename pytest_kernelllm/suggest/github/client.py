"""GitHub's REST API, as much of it as suggestions need: retried, paced as GitHub asks, page by page."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import httpx2

from pytest_kernelllm.suggest.github.errors import ApiError
from pytest_kernelllm.web.answers import retry_after, what_it_says
from pytest_kernelllm.web.secret import Redactor, Secret, is_loopback, is_safe_for_tokens

VERSION = "2022-11-28"
TRIES = 5
PATIENCE = 900.0
"""Seconds that are waited for one answer, all pauses together."""
MOST_PAGES = 50

_SAFE_TO_REPEAT = ("GET", "PUT", "PATCH")


class Clock(Protocol):
    """Time passing; a test brings its own."""

    def now(self) -> float:
        """Seconds since 1970, as GitHub counts them."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class GitHub:
    """The API for one repository. What it returns is GitHub's JSON; what it raises is an ``ApiError``."""

    def __init__(self, api: str, repository: str, token: Secret, clock: Clock | None = None) -> None:
        """Prepare; nothing is sent.

        Args:
            api: ``https://api.github.com``, or ``https://HOST/api/v3`` of a GitHub Enterprise Server.
            repository: ``owner/name``.
            token: sent to ``api`` and nowhere else.
            clock: what waiting is measured by.

        Raises:
            ApiError: the token would cross an open network unencrypted.
        """
        if not is_safe_for_tokens(api):
            raise ApiError(0, f"The token would travel unencrypted to {urlsplit(api).netloc}; use https://.")
        self._root = f"{api.rstrip('/')}/repos/{repository}/"
        self._clock = clock or SystemClock()
        self._redact = Redactor([token])
        self._client = httpx2.Client(
            auth=_Auth(token),
            headers={
                "accept": "application/vnd.github+json, application/json",
                "x-github-api-version": VERSION,
            },
            timeout=60,
            follow_redirects=False,
            trust_env=not is_loopback(api),
        )
        # At level INFO it writes down every address; nobody asked for that.
        logging.getLogger("httpx2").setLevel(logging.WARNING)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    # ------------------------------------------------------------------ pull requests

    def pulls(self, head: str, *, state: str, base: str | None = None) -> list[dict[str, Any]]:
        """Pull requests from a branch (``owner:branch``), newest first. ``state``: open, closed, all."""
        asked = {"head": head, "state": state, "sort": "created", "direction": "desc"}
        return list(self._pages("pulls", {**asked, **({"base": base} if base else {})}))

    def open_pull(self, *, title: str, head: str, base: str, body: str) -> dict[str, Any]:
        """Open a pull request from one branch of the repository to another."""
        return self._json("POST", "pulls", {"title": title, "head": head, "base": base, "body": body})

    def update_pull(self, number: int, *, body: str, state: str | None = None) -> dict[str, Any]:
        """Change a pull request's text, and close it with ``state="closed"``."""
        return self._json("PATCH", f"pulls/{number}", {"body": body, **({"state": state} if state else {})})

    def pull_files(self, number: int) -> list[dict[str, Any]]:
        """The files that a pull request changes, with their diffs."""
        return list(self._pages(f"pulls/{number}/files"))

    # ------------------------------------------------------------------ reviews and comments

    def reviews(self, number: int) -> list[dict[str, Any]]:
        """A pull request's reviews."""
        return list(self._pages(f"pulls/{number}/reviews"))

    def review(
        self, number: int, *, commit: str, body: str, comments: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Comment on lines of a pull request without approving or refusing it."""
        content = {"commit_id": commit, "body": body, "event": "COMMENT", "comments": list(comments)}
        return self._json("POST", f"pulls/{number}/reviews", content)

    def update_review(self, number: int, review: int, body: str) -> dict[str, Any]:
        """Change a review's text."""
        return self._json("PUT", f"pulls/{number}/reviews/{review}", {"body": body})

    def comments(self, number: int) -> list[dict[str, Any]]:
        """The comments below a pull request."""
        return list(self._pages(f"issues/{number}/comments"))

    def comment(self, number: int, body: str) -> dict[str, Any]:
        """Write below a pull request."""
        return self._json("POST", f"issues/{number}/comments", {"body": body})

    # ------------------------------------------------------------------ requests

    def _pages(self, path: str, asked: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        url: str | None = f"{self._root}{path}?{httpx2.QueryParams({**(asked or {}), 'per_page': '100'})}"
        for _ in range(MOST_PAGES):
            assert url is not None
            reply = self._send("GET", url)
            yield from _parsed(reply, list)
            url = reply.links.get("next", {}).get("url")
            if url is None:
                return
            url = urljoin(self._root, url)
            if urlsplit(url)[:2] != urlsplit(self._root)[:2]:
                raise ApiError(0, f"GET {path}: the next page is said to be on another server.")
        raise ApiError(0, f"GET {path}: there are more than {MOST_PAGES} pages.")

    def _json(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = _parsed(self._send(method, self._root + path, content), dict)
        return found

    def _send(self, method: str, url: str, content: Mapping[str, Any] | None = None) -> httpx2.Response:
        asked = f"{method} {urlsplit(url).path}"
        waited = 0.0
        for tries in range(1, TRIES + 1):
            pause: float | None
            try:
                reply = self._client.request(method, url, json=content)
                if reply.is_success:
                    return reply
                pause = self._pause(method, reply, tries)
                error = self._refusal(asked, reply)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as fault:  # nothing was sent
                pause = 2.0**tries
                error = ApiError(0, f"{asked}: no connection ({self._redact(str(fault))}).")
            except httpx2.HTTPError as fault:
                pause = 2.0**tries if method in _SAFE_TO_REPEAT else None
                error = ApiError(0, f"{asked}: the connection broke ({self._redact(str(fault))}).")
            if pause is None:
                raise error
            if tries == TRIES or waited + pause > PATIENCE:
                raise ApiError(0, f"{error} Given up after {tries} tries and {waited:.0f} s of waiting.")
            waited += pause
            self._clock.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _pause(self, method: str, reply: httpx2.Response, tries: int) -> float | None:
        """Seconds after which to ask again; None where that would not help."""
        headers = reply.headers
        if reply.status_code in (403, 429):
            after = retry_after(headers.get("retry-after", ""))
            if after is not None:
                return after
            if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
                return max(0.0, float(headers["x-ratelimit-reset"]) - self._clock.now()) + 1
            limited = reply.status_code == 429 or "rate limit" in reply.text.lower()
            return 60.0 if limited else None
        return 2.0**tries if reply.status_code >= 500 and method in _SAFE_TO_REPEAT else None

    def _refusal(self, asked: str, reply: httpx2.Response) -> ApiError:
        said = self._redact(what_it_says(reply.text))
        return ApiError(reply.status_code, f"{asked}: GitHub answers {reply.status_code} ({said}).")


class _Auth(httpx2.Auth):
    """Writes the header at the last moment, so that no object that prints itself holds the token."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add ``Authorization``."""
        request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        yield request


def _parsed(reply: httpx2.Response, kind: type) -> Any:
    try:
        found = reply.json()
    except ValueError:
        found = None
    if not isinstance(found, kind):
        raise ApiError(
            reply.status_code,
            f"{reply.request.method} {reply.request.url.path}: GitHub's answer is no {kind.__name__}.",
        )
    return found
