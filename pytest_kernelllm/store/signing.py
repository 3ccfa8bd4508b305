"""The key of the store: it signs entries, so that only its holders can write what counts.

With the key in the environment, entries that it did not sign count as missing. So a trusted job believes nothing that
an untrusted one, a cache or a repository supplies.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from kernelllm_judge.core.errors import ConfigError
from pytest_kernelllm.web.secret import Secret

VARIABLE = "KERNELLLM_STORE_KEY"
"""The environment variable that holds the key."""

SHORTEST = 32
"""Fewest characters of a key: short ones can be guessed from signed entries."""


class StoreKey:
    """Signs entries, and checks its own signatures."""

    def __init__(self, secret: Secret) -> None:
        """For a key as it stands in the environment."""
        self._secret = secret

    def sign(self, text: str) -> str:
        """Returns 64 hex digits that only a holder of the key can make for this text (HMAC-SHA-256)."""
        return hmac.new(self._secret.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()

    def signed(self, text: str, signature: object) -> bool:
        """Whether ``signature`` is this key's for ``text``."""
        given = signature.encode(errors="replace") if isinstance(signature, str) else b""
        return hmac.compare_digest(self.sign(text).encode(), given)


def find_key(environ: Mapping[str, str]) -> StoreKey | None:
    """Returns the key in the environment; None where there is none.

    Raises:
        ConfigError: it is too short to be safe.
    """
    text = environ.get(VARIABLE, "").strip()
    if text and len(text) < SHORTEST:
        raise ConfigError(
            f"{VARIABLE} has {len(text)} characters, of at least {SHORTEST}; `openssl rand -hex 32` makes a good one."
        )
    return StoreKey(Secret(text)) if text else None
