"""Requests to one server: where tokens go, which redirects are followed, and faults in place of exceptions."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx2

from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.retry import RequestLimits
from pytest_kernelllm.web.secret import Redactor, Secret, is_loopback, is_safe_for_tokens

MOST_BYTES = 16 * 2**20
"""Most bytes of one response."""

Refusal = Callable[[str, int, Mapping[str, str], str], Fault]
"""Makes a fault of an unsuccessful response, given method and path (``POST /v1/completions``), status, headers with
names in lower case, and text without secrets."""

_LOGGERS = [
    logging.getLogger(f"httpcore2.{name}") for name in ("connection", "http11", "http2", "proxy", "socks")
]
_LOGGERS.append(logging.getLogger("httpx2"))

_REDIRECTS = (301, 302, 303, 307, 308)


class Http:
    """A connection pool for one server. Enter it in the event loop that uses it.

    Requests, and with them the token, go to the server's own scheme, host and port and nowhere else; a redirect
    to another address is a fault.
    """

    def __init__(
        self,
        root: str,
        refusal: Refusal,
        limits: RequestLimits,
        token: Secret | None = None,
        login: Secret | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares the pool; sends nothing.

        Args:
            root: the address of the server, which ``token`` and ``login`` are for.
            refusal: makes faults of unsuccessful responses.
            limits: ``connect`` and ``idle`` apply here.
            token: sent as a bearer token; it takes precedence over ``login``.
            login: ``user:password``.

        Raises:
            Fault: the token would travel over an open network unencrypted.
        """
        if (token or login) and not is_safe_for_tokens(root):
            raise Fault(
                f"would receive the token unencrypted ({urlsplit(root).netloc}): use its https:// address, or no token",
                fatal=True,
            )
        self._origin = _origin(root)
        self._refusal = refusal
        self._redact = Redactor([token, login, _password(login)])
        self._client = httpx2.AsyncClient(
            auth=_Authorization(token, login) if token or login else None,
            headers=dict(headers or {}),
            timeout=httpx2.Timeout(limits.idle, connect=limits.connect, pool=None),
            follow_redirects=False,
            verify=root.startswith("https:"),  # loading certificates takes time, and http:// needs none
            trust_env=not is_loopback(root),  # a proxy does not reach this machine
            limits=httpx2.Limits(max_connections=None),
        )
        self._limits = limits

    def _filter(self, record: logging.LogRecord) -> bool:
        # At level DEBUG the loggers write response headers, in which a server may repeat the token.
        record.msg, record.args = self._redact(record.getMessage()), ()
        return True

    async def __aenter__(self) -> Http:
        """Open the pool."""
        for logger in _LOGGERS:
            logger.addFilter(self._filter)
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Close every connection."""
        await self._client.__aexit__(*raised)
        for logger in _LOGGERS:
            logger.removeFilter(self._filter)

    async def ask(self, method: str, url: str, body: object = None) -> Any:
        """Send a request and return the JSON of the response.

        Raises:
            Fault: there is no response, or it is unsuccessful or not JSON.
        """
        found, _ = await self.page(method, url, body)
        return found

    async def page(self, method: str, url: str, body: object = None) -> tuple[Any, str | None]:
        """The JSON of the response as ``ask`` returns it, and the address of the next page if there is one."""
        async with self._reply(method, url, body, "application/json") as reply:
            text = await self._text(reply)
            return self._parsed(reply, text, retryable=False), reply.links.get("next", {}).get("url")

    async def events(self, url: str, body: object) -> AsyncGenerator[Any, None]:
        """Yield the JSON of each server-sent event, or the one response of a server that does not stream.

        Raises:
            Fault: there is no response, it is unsuccessful or not JSON, or the stream breaks off.
        """
        async with self._reply("POST", url, body, "text/event-stream, application/json") as reply:
            if reply.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
                yield self._parsed(reply, await self._text(reply), retryable=True)
                return
            async with aclosing(self._data(reply)) as lines:
                async for data in lines:
                    if data.strip() == "[DONE]":
                        return
                    try:
                        event = json.loads(self._redact(data))
                    except ValueError:
                        raise Fault("sent no JSON in the middle of an answer", retryable=True) from None
                    yield event

    async def _data(self, reply: httpx2.Response) -> AsyncGenerator[str, None]:
        read = 0
        with self._faults():
            async for event in httpx2.EventSource(reply, max_event_size=MOST_BYTES):
                read += len(event.data)
                if read > 4 * MOST_BYTES:  # each token is wrapped in some hundred bytes
                    raise Fault("sent more than any answer needs")
                if event.data:
                    yield event.data

    @asynccontextmanager
    async def _reply(
        self, method: str, url: str, body: object, accept: str
    ) -> AsyncIterator[httpx2.Response]:
        if not self._is_own(url):
            raise Fault(f"names an address on another server: {self._redact(url)}", fatal=True)
        headers, content = {"accept": accept}, None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")  # half a surrogate pair
        for _ in range(4):
            request = self._client.build_request(method, url, content=content, headers=headers)
            with self._faults():
                reply = await self._client.send(request, stream=True)
            try:
                if reply.status_code in _REDIRECTS:
                    url = self._redirected(method, url, reply)
                    continue
                if not reply.is_success:
                    text = await self._text(reply)
                    raise self._refusal(self._asked(reply), reply.status_code, dict(reply.headers), text)
                yield reply
                return
            finally:
                await reply.aclose()
        raise Fault("redirects in circles", fatal=True)

    def _redirected(self, method: str, url: str, reply: httpx2.Response) -> str:
        code = reply.status_code
        try:
            target = urljoin(url, reply.headers.get("location", ""))
            parts = urlsplit(target)
        except ValueError:
            raise Fault(f"redirects ({code}) to nowhere", fatal=True) from None
        if not self._is_own(target):
            # Not its query: it may hold keys of somebody else's.
            place = parts.netloc.rpartition("@")[2]
            shown = self._redact(urlunsplit((parts.scheme, place, parts.path, "", "")))
            raise Fault(
                f"redirects ({code}) to another address, {shown}, where it is not followed;"
                " give that address if it is the right one",
                fatal=True,
            )
        if method != "GET" and code not in (307, 308):
            raise Fault(f"redirects a request with a body ({code}) to {self._redact(parts.path)}", fatal=True)
        return target

    def _is_own(self, url: str) -> bool:
        try:
            return _origin(url) == self._origin
        except ValueError:
            return False

    def _asked(self, reply: httpx2.Response) -> str:
        return self._redact(f"{reply.request.method} {reply.request.url.path}")

    def _parsed(self, reply: httpx2.Response, text: str, *, retryable: bool) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            code = f"{reply.status_code}: {what_it_says(text)}"
            raise Fault(
                f"sent no JSON: {self._asked(reply)} ({code})", status=reply.status_code, retryable=retryable
            ) from None

    async def _text(self, reply: httpx2.Response) -> str:
        read = bytearray()
        with self._faults():
            async for chunk in reply.aiter_bytes():
                read += chunk
                if len(read) > MOST_BYTES:
                    raise Fault(f"sent more than {MOST_BYTES:,} bytes")
        return self._redact(read.decode("utf-8", "replace"))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except httpx2.ConnectTimeout:
            raise Fault(
                f"cannot be reached: no connection within {self._limits.connect:g} s",
                retryable=True,
                fatal=True,
                unsent=True,
            ) from None
        except httpx2.TimeoutException:
            raise Fault(f"sent nothing for {self._limits.idle:g} s", retryable=True) from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            why = self._redact(str(error)) or "no connection"
            raise Fault(f"cannot be reached: {why}", retryable=True, fatal=True, unsent=True) from None
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise Fault("has an address that cannot be requested", fatal=True) from None
        except httpx2.HTTPError as error:
            why = self._redact(str(error)) or type(error).__name__
            raise Fault(f"broke the connection ({why})", retryable=True) from None


class _Authorization(httpx2.Auth):
    """Adds the header to each request as it is sent, so that no object with a ``repr`` holds the token."""

    def __init__(self, token: Secret | None, login: Secret | None) -> None:
        self._token = token
        self._login = login

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add ``Authorization``."""
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        elif self._login is not None:
            user, _, password = self._login.reveal().partition(":")
            yield from httpx2.BasicAuth(user, password).auth_flow(request)
            return
        yield request


def _password(login: Secret | None) -> Secret | None:
    password = login.reveal().partition(":")[2] if login else ""
    return Secret(password) if password else None


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
