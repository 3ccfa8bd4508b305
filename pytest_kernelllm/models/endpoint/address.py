"""Where a model is: the text that the user gave, taken apart and without its secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint.tokens import is_hugging_face
from pytest_kernelllm.web.secret import Secret

SPELLINGS = "https://HOST[/PREFIX], hf:[NAMESPACE/]NAME or hf-model:OWNER/MODEL[:PROVIDER]"

_ROUTES = ("/chat/completions", "/completions", "/models", "/generate_stream", "/generate", "/info")
"""Ends of addresses that people copy out of examples; the server is asked for its routes instead."""


@dataclass(frozen=True)
class Address:
    """What ``--kernelllm-endpoint`` names."""

    kind: Literal["url", "hf", "hf-model"]
    shown: str
    """What people and caches see: no user, no password."""
    url: str = ""
    """``url``: scheme, host and prefix, without user, password and slash at the end."""
    login: Secret | None = None
    """``url``: ``user:password``, where the address held one."""
    namespace: str = ""
    """``hf``: whose endpoint; empty for the token's owner."""
    name: str = ""
    """``hf``: the endpoint. ``hf-model``: ``OWNER/MODEL``."""
    provider: str = ""
    """``hf-model``: which provider; empty for the first one that serves the model."""

    @property
    def hugging_face(self) -> bool:
        """Whether the user's Hugging Face token belongs there."""
        return self.kind != "url" or is_hugging_face(self.url)


def parse(where: str) -> Address:
    """Take ``where`` apart.

    Raises:
        GenerateError: it has none of the known forms; the text never repeats a password or a query.
    """
    where = where.strip()
    if where.startswith("hf-model:"):
        return _routed(where)
    if where.startswith("hf:"):
        return _named(where)
    if not re.match(r"https?://", where, re.IGNORECASE):
        raise GenerateError(f"An endpoint is given as {SPELLINGS}.")
    return _url(where)


def _named(where: str) -> Address:
    found = re.fullmatch(r"hf:(?:(?P<space>[\w.-]+)/)?(?P<name>[\w.-]+)", where)
    if not found:
        raise GenerateError("A Hugging Face endpoint is named `hf:NAME` or `hf:NAMESPACE/NAME`.")
    return Address("hf", where, namespace=found["space"] or "", name=found["name"])


def _routed(where: str) -> Address:
    found = re.fullmatch(r"hf-model:(?P<model>[\w.-]+/[\w.-]+)(?::(?P<provider>[\w-]+))?", where)
    if not found:
        raise GenerateError(
            "A routed model is named `hf-model:OWNER/MODEL` or `hf-model:OWNER/MODEL:PROVIDER`."
        )
    return Address("hf-model", where, name=found["model"], provider=found["provider"] or "")


def _url(where: str) -> Address:
    try:
        parts = urlsplit(where)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise GenerateError(f"The endpoint's address cannot be read; it is given as {SPELLINGS}.")
    if parts.query or parts.fragment:
        raise GenerateError(
            f"The address of the endpoint on {host} goes on after a `?` or `#`: leave that out;"
            " a token is given as KERNELLLM_ENDPOINT_TOKEN."
        )
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    path = parts.path.rstrip("/")
    for route in _ROUTES:
        path = path.removesuffix(route)
    url = urlunsplit((parts.scheme.lower(), netloc, path.rstrip("/"), "", ""))
    login = None
    if parts.username or parts.password:
        login = Secret(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}")
    return Address("url", url, url=url, login=login)
