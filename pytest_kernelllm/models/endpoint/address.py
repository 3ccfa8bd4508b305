"""Parses the address of a model's server and separates the secrets in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint.tokens import is_hugging_face
from pytest_kernelllm.web.secret import Secret

SPELLINGS = "https://HOST[/PREFIX], hf:[NAMESPACE/]NAME or hf-model:OWNER/MODEL[:PROVIDER]"

_ROUTES = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/models",
    "/generate_stream",
    "/generate",
    "/info",
)
"""Ends of addresses copied from examples; the server's routes are looked up instead."""


@dataclass(frozen=True)
class Address:
    """The value of ``--kernelllm-endpoint``."""

    kind: Literal["url", "hf", "hf-model"]
    shown: str
    """The address in messages and cache keys: without user and password."""
    url: str = ""
    """``url``: scheme, host and prefix, without user, password and trailing slash."""
    login: Secret | None = None
    """``url``: ``user:password``, if the address contained one."""
    namespace: str = ""
    """``hf``: owner of the endpoint; empty for the token's owner."""
    name: str = ""
    """``hf``: name of the endpoint. ``hf-model``: ``OWNER/MODEL``."""
    provider: str = ""
    """``hf-model``: the provider; empty for the first one that serves the model."""

    @property
    def hugging_face(self) -> bool:
        """Whether the user's Hugging Face token may be sent there."""
        return self.kind != "url" or is_hugging_face(self.url)


def parse(where: str) -> Address:
    """Parses an address.

    Raises:
        GenerateError: it has none of the known forms; the text never contains a password or a query.
    """
    where = where.strip()
    if where.startswith("hf-model:"):
        return _routed(where)
    if where.startswith("hf:"):
        return _named(where)
    if not re.match(r"https?://", where, re.IGNORECASE):
        raise GenerateError(f"An endpoint has the form {SPELLINGS}.")
    return _url(where)


def _named(where: str) -> Address:
    found = re.fullmatch(r"hf:(?:(?P<space>[\w.-]+)/)?(?P<name>[\w.-]+)", where)
    if not found:
        raise GenerateError("A Hugging Face endpoint has the form `hf:NAME` or `hf:NAMESPACE/NAME`.")
    return Address("hf", where, namespace=found["space"] or "", name=found["name"])


def _routed(where: str) -> Address:
    found = re.fullmatch(r"hf-model:(?P<model>[\w.-]+/[\w.-]+)(?::(?P<provider>[\w-]+))?", where)
    if not found:
        raise GenerateError(
            "A routed model has the form `hf-model:OWNER/MODEL` or `hf-model:OWNER/MODEL:PROVIDER`."
        )
    return Address("hf-model", where, name=found["model"], provider=found["provider"] or "")


def _url(where: str) -> Address:
    try:
        parts = urlsplit(where)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise GenerateError(f"The endpoint's address cannot be read; it has the form {SPELLINGS}.")
    if parts.query or parts.fragment:
        raise GenerateError(
            f"The address of the endpoint on {host} contains a `?` or `#`: leave that part out;"
            " set KERNELLLM_ENDPOINT_TOKEN to give a token."
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
