"""Tokens: they appear in no text, and are never sent where others can read them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NoReturn
from urllib.parse import quote, urlsplit


class Secret:
    """A text that is shown only by an explicit call of ``reveal``."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Keep ``value``."""
        self._value = value

    def reveal(self) -> str:
        """Returns the text, for the header of a request and nothing else."""
        return self._value

    def __repr__(self) -> str:
        """Shows the same for all secrets."""
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled."""
        raise TypeError("A secret is not written to disk or sent to another process.")


class Redactor:
    """Removes secrets from texts by others: servers repeat what they receive."""

    def __init__(self, secrets: Sequence[Secret | None]) -> None:
        """Take the secrets to remove; None stands for a missing one."""
        self._secrets = tuple(secret for secret in secrets if secret is not None)

    def __call__(self, text: str) -> str:
        """Returns ``text`` with every secret replaced, plain or encoded for a URL or a header."""
        for value in (secret.reveal() for secret in self._secrets):
            for form in (value, quote(value, safe=""), base64.b64encode(value.encode()).decode()):
                text = text.replace(form, "[secret]")
        return text


def is_loopback(url: str) -> bool:
    """Returns whether ``url`` is an address of this machine."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _address(host, "is_loopback")


def is_safe_for_tokens(url: str) -> bool:
    """Returns whether nobody on an open network can read what is sent: HTTPS, this machine, or a private network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    private = "." not in host and ":" not in host  # a name within the local network
    return parts.scheme == "https" or private or is_loopback(url) or _address(host, "is_private")


def _address(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ip_address(host), kind))
    except ValueError:
        return False
