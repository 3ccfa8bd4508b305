"""Finds out which protocol a server uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.models.endpoint.openai import DIALECTS, Dialect, OpenAi
from pytest_kernelllm.models.endpoint.tgi import Tgi
from pytest_kernelllm.models.endpoint.wire import Wire, number
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry

REPOSITORY = r"[\w.-]+/[\w.-]+"
"""Name of a model's repository, as opposed to a folder."""


@dataclass(frozen=True)
class Served:
    """A server's protocol and what it reports about its model."""

    root: str
    """The address that the token is for."""
    wire: Wire
    model: str = ""
    """The model's repository, if the server reports it."""
    revision: str = ""
    """The commit of that repository, if reported: by TGI, and by Hugging Face for its endpoints."""
    price: float | None = None
    """US dollars an hour, if reported: by Hugging Face for its endpoints."""


async def detect_protocol(http: Http, root: str, model: str, retry: Retry) -> Served:
    """Finds out whether the server at ``root`` uses TGI's protocol or OpenAI's.

    Args:
        http: a connection to it.
        root: its address; a ``/v1`` at the end belongs to OpenAI's routes.
        model: the name that the user gave, or ""; a server with a single model is asked for that one.
        retry: waits for a server that is starting.

    Raises:
        Fault: it uses neither (the text contains its answers), refuses the token, cannot be reached, or
            serves several models, none of which was named.
    """
    answers: list[str] = []

    async def ask(url: str) -> Any:
        try:
            return await retry(lambda: http.ask("GET", url))
        except Fault as fault:
            if fault.fatal:
                raise
            answers.append(fault.reason)
            return None

    base = root.removesuffix("/v1")
    info = await ask(f"{base}/info")
    if isinstance(info, dict) and number(info, "max_total_tokens") and isinstance(info.get("model_id"), str):
        wire = Tgi(f"{base}/generate_stream", f"{base}/tokenize", number(info, "max_total_tokens"))
        return Served(root, wire, info["model_id"], str(info.get("model_sha") or ""))
    # Its list of models describes a cache, not what it serves, and fails without a cache.
    if _is_transformers_serve(await ask(f"{base}/openapi.json")):
        return Served(root, OpenAi(f"{base}/v1/completions", model, "transformers"), model)
    for prefix in (f"{base}/v1", base):
        listed = await ask(f"{prefix}/models")
        if isinstance(listed, dict) and isinstance(listed.get("data"), list):
            models = [entry for entry in listed["data"] if isinstance(entry, dict)]
            return _openai(root, base, prefix, models, model)
    raise Fault(
        f"uses neither TGI's protocol nor OpenAI's: it {'; it '.join(answers) or 'answered with other JSON'}",
        fatal=True,
    )


def _openai(root: str, base: str, prefix: str, models: list[dict[str, Any]], requested: str) -> Served:
    dialect: Dialect = "other"
    for entry in models:
        dialect = DIALECTS.get(str(entry.get("owned_by")), dialect)
    names = [str(entry["id"]) for entry in models if entry.get("id")]
    model = requested if requested in names or len(names) != 1 else names[0]
    if len(names) > 1 and model not in names:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise Fault(
            f"serves {listed}{f', but not {requested}' if requested else ''}: name one with `model`",
            fatal=True,
        )
    entry = next((entry for entry in models if entry.get("id") == model), {})
    meta = entry.get("meta") if isinstance(entry.get("meta"), dict) else {}
    wire = OpenAi(
        f"{prefix}/completions",
        model,
        dialect,
        tokenize=f"{base}/tokenize" if dialect in ("vllm", "sglang", "llamacpp") else "",
        context=number(entry, "max_model_len", "context_length") or number(meta or {}, "n_ctx"),
    )
    behind = str(entry.get("root") or "")  # vLLM: the repository that it loaded under that name
    return Served(root, wire, behind if re.fullmatch(REPOSITORY, behind) else model)


def _is_transformers_serve(described: Any) -> bool:
    paths = described.get("paths") if isinstance(described, dict) else None
    return isinstance(paths, dict) and {"/load_model", "/v1/completions"} <= paths.keys()
