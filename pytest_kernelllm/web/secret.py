"""Tokens: kept out of every text, and never sent where others can read them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NoReturn
from urllib.parse import quote, urlsplit


class Secret:
    """A text that shows itself to nobody who does not ask for it by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Hide ``value``."""
        self._value = value

    def reveal(self) -> str:
        """The text itself; for a request's header and nothing else."""
        return self._value

    def __repr__(self) -> str:
        """The same for all."""
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError("A secret is not written to disk or sent to another process.")


class Redactor:
    """Takes secrets out of texts that others wrote: servers echo what they were sent."""

    def __init__(self, secrets: Sequence[Secret | None]) -> None:
        """For these secrets; None stands for one that there is not."""
        self._secrets = tuple(secret for secret in secrets if secret is not None)

    def __call__(self, text: str) -> str:
        """``text`` with every secret in it, plain or encoded for a URL or a header, replaced."""
        for value in (secret.reveal() for secret in self._secrets):
            for form in (value, quote(value, safe=""), base64.b64encode(value.encode()).decode()):
                text = text.replace(form, "[secret]")
        return text


def is_loopback(url: str) -> bool:
    """Whether ``url`` stays on this machine."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _address(host, "is_loopback")


def is_safe_for_tokens(url: str) -> bool:
    """Whether nobody on the open network can read what is sent: HTTPS, this machine, or a private network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    private = "." not in host and ":" not in host  # a name that only the own network knows
    return parts.scheme == "https" or private or is_loopback(url) or _address(host, "is_private")


def _address(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ip_address(host), kind))
    except ValueError:
        return False
