"""Reads unsuccessful responses: the server's message, and the pause that it asks for."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any

from kernelllm_judge.core.shorten import whole


def what_it_says(body: str) -> str:
    """Returns the message in an error's body in one line: a JSON message, an HTML page's title, or the first line."""
    try:
        message = _message(json.loads(body))
    except ValueError:
        if re.search(r"<html|<!doctype|<title", body[:2000], re.IGNORECASE):
            title = re.search(r"<title[^>]*>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
            message = f"a web page titled “{whole(unescape(title[1]), 80)}”" if title else "a web page"
        else:
            message = body.strip().partition("\n")[0]
    message = "".join(c if c.isprintable() else " " for c in message)
    return whole(message).rstrip(".")


def _message(found: Any) -> str:
    if isinstance(found, dict):
        for key in ("error", "message", "detail", "msg"):
            if found.get(key):
                where = found.get("loc") if key == "msg" else None  # FastAPI names the field apart
                named = ".".join(map(str, where)) + ": " if isinstance(where, list) else ""
                return named + _message(found[key])
        return ""
    if isinstance(found, list):
        return "; ".join(filter(None, (_message(item) for item in found[:3])))
    return found if isinstance(found, str) else ""


def retry_after(value: str) -> float | None:
    """Returns the seconds that a ``Retry-After`` header asks for, as a number or as a date; None if it has neither."""
    value = value.strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
