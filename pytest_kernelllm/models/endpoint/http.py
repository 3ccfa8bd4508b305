"""Requests to one server: where tokens go, what is followed, and faults in place of exceptions."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint.faults import Fault, of_response
from pytest_kernelllm.models.endpoint.pace import Bounds
from pytest_kernelllm.web.secret import Redactor, Secret, is_loopback, is_safe_for_tokens

MOST_BYTES = 16 * 2**20
"""Of one answer; no model writes that much."""

_LOGGERS = [
    logging.getLogger(f"httpcore2.{name}") for name in ("connection", "http11", "http2", "proxy", "socks")
]
_LOGGERS.append(logging.getLogger("httpx2"))

_REDIRECTS = (301, 302, 303, 307, 308)


class Http:
    """A connection pool for one server. Enter it in the event loop it is used in.

    A token goes to the server's own scheme, host and port and nowhere else: redirects that leave them are
    faults.
    """

    def __init__(self, root: str, token: Secret | None, login: Secret | None, bounds: Bounds) -> None:
        """Prepare; nothing is sent.

        Args:
            root: the address that ``token`` and ``login`` are for.
            token: sent as a bearer; it wins over ``login``.
            login: ``user:password``, from the address.
            bounds: ``connect`` and ``idle`` are this module's.

        Raises:
            GenerateError: the token would cross an open network unencrypted.
        """
        if (token or login) and not is_safe_for_tokens(root):
            raise GenerateError(
                f"The token would travel unencrypted to {urlsplit(root).netloc}: give the endpoint's https:// address,"
                " or unset KERNELLLM_ENDPOINT_TOKEN if it wants none."
            )
        self._origin = _origin(root)
        self._has_token = bool(token or login)
        self._redact = Redactor([token, login, _password(login)])
        self._client = httpx2.AsyncClient(
            auth=_Auth(token, login) if token or login else None,
            timeout=httpx2.Timeout(bounds.idle, connect=bounds.connect, pool=None),
            follow_redirects=False,
            verify=root.startswith("https:"),  # loading certificates takes a while, and http:// has none
            trust_env=not is_loopback(root),  # a proxy for the world is none for this machine
            limits=httpx2.Limits(max_connections=None),
        )
        self._bounds = bounds

    def _filter(self, record: logging.LogRecord) -> bool:
        # At level DEBUG they write down the headers of answers, in which a server may repeat what it was sent.
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
        """The JSON that the server answers.

        Raises:
            Fault: it answers something else, or not at all.
        """
        async with self._reply(method, url, body, "application/json") as reply:
            text = await self._text(reply)
            try:
                return json.loads(text)
            except ValueError:
                raise self._no_json(method, reply, text, again=False) from None

    async def events(self, url: str, body: object) -> AsyncGenerator[Any, None]:
        """Yield the JSON of each server-sent event; or the one answer of a server that does not stream.

        Raises:
            Fault: it answers something else, stops in between, or not at all.
        """
        async with self._reply("POST", url, body, "text/event-stream, application/json") as reply:
            if reply.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
                text = await self._text(reply)
                try:
                    yield json.loads(text)
                except ValueError:
                    raise self._no_json("POST", reply, text, again=True) from None
                return
            async with aclosing(self._data(reply)) as lines:
                async for data in lines:
                    if data.strip() == "[DONE]":
                        return
                    try:
                        event = json.loads(self._redact(data))
                    except ValueError:
                        raise Fault("sent no JSON in the middle of an answer", again=True) from None
                    yield event

    async def _data(self, reply: httpx2.Response) -> AsyncGenerator[str, None]:
        read = 0
        with self._faults():
            async for event in httpx2.EventSource(reply, max_event_size=MOST_BYTES):
                read += len(event.data)
                if read > 4 * MOST_BYTES:  # each token comes in a wrapping of some hundred bytes
                    raise Fault("does not stop writing")
                if event.data:
                    yield event.data

    @asynccontextmanager
    async def _reply(
        self, method: str, url: str, body: object, accept: str
    ) -> AsyncIterator[httpx2.Response]:
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
                    asked = f"{method} {urlsplit(url).path or '/'}"
                    raise of_response(asked, reply.status_code, dict(reply.headers), text, self._has_token)
                yield reply
                return
            finally:
                await reply.aclose()
        raise Fault("redirects in circles", everything=True)

    def _redirected(self, method: str, url: str, reply: httpx2.Response) -> str:
        code = reply.status_code
        target = urljoin(url, reply.headers.get("location", ""))
        try:
            leaves = _origin(target) != self._origin
        except ValueError:
            raise Fault(f"redirects ({code}) to nowhere", everything=True) from None
        if leaves:
            scheme, host, _ = _origin(target)
            shown = self._redact(f"{scheme}://{host}")
            raise Fault(
                f"redirects ({code}) to another address, {shown}, where it is not followed;"
                " give that address if it is the right one",
                everything=True,
            )
        if method != "GET" and code not in (307, 308):
            raise Fault(
                f"redirects a request with a body ({code}) to {self._redact(urlsplit(target).path)}",
                everything=True,
            )
        return target

    async def _text(self, reply: httpx2.Response) -> str:
        read = bytearray()
        with self._faults():
            async for chunk in reply.aiter_bytes():
                read += chunk
                if len(read) > MOST_BYTES:
                    raise Fault("does not stop writing")
        return self._redact(read.decode("utf-8", "replace"))

    def _no_json(self, method: str, reply: httpx2.Response, text: str, *, again: bool) -> Fault:
        found = of_response(f"{method} {reply.url.path}", 200, {}, text, self._has_token)
        return Fault(
            f"sent no JSON: {found.reason.removeprefix('refused ')}", status=reply.status_code, again=again
        )

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except httpx2.ConnectTimeout:
            raise Fault(
                f"cannot be reached: no connection within {self._bounds.connect:g} s",
                again=True,
                everything=True,
            ) from None
        except httpx2.TimeoutException:
            raise Fault(f"sent nothing for {self._bounds.idle:g} s", again=True) from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            why = self._redact(str(error)) or "no connection"
            raise Fault(f"cannot be reached: {why}", again=True, everything=True) from None
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise Fault("has an address that cannot be asked", everything=True) from None
        except httpx2.HTTPError as error:
            why = self._redact(str(error)) or type(error).__name__
            raise Fault(f"broke the connection ({why})", again=True) from None


class _Auth(httpx2.Auth):
    """Writes the header at the last moment, so that no object that prints itself holds the token."""

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
