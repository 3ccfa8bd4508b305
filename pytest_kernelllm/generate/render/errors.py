"""The error of rendering a completion."""

from __future__ import annotations

from pytest_kernelllm.discover.errors import in_one_line


class RenderError(ValueError):
    """Raised if a completion cannot be rendered; one sentence names the attribute, the operation or the line."""


def unexpected(who: str, what: str, error: BaseException) -> str:
    """Describes a bug of ours in a sentence: ``The renderer failed on this completion: TypeError: …; please report it.``"""
    return f"{who} failed on this {what}: {in_one_line(error)}; please report it."
