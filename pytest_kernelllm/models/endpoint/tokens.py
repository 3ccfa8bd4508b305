"""Chooses the token for a server: the user's Hugging Face token is sent to Hugging Face only."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pytest_kernelllm.web.secret import Secret

HUGGING_FACE = ("huggingface.co", "huggingface.cloud", "hf.co", "hf.space")
"""Hosts, including subdomains, that the user's Hugging Face token may be sent to."""


def find_token(given: str | None, hugging_face: bool, environ: Mapping[str, str]) -> Secret | None:
    """Returns the token to send; None if there is none.

    Args:
        given: from the caller; it takes precedence.
        hugging_face: whether the server is Hugging Face's, so that its token may be used as well.
        environ: where ``KERNELLLM_ENDPOINT_TOKEN`` is looked up, then ``HF_TOKEN``, then the login of
            ``hf auth``.
    """
    token = (given or environ.get("KERNELLLM_ENDPOINT_TOKEN", "")).strip()
    if not token and hugging_face:
        token = environ.get("HF_TOKEN", "").strip() or _login(environ)
    return Secret(token) if token else None


def _login(environ: Mapping[str, str]) -> str:
    if environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return ""
    from huggingface_hub import get_token

    return get_token() or ""


def is_hugging_face(url: str) -> bool:
    """Returns whether ``url`` is an encrypted address of Hugging Face."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and any(host == own or host.endswith("." + own) for own in HUGGING_FACE)
