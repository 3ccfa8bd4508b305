"""Finds out what a server speaks, by asking it."""

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
"""How a model's repository is named; a folder is not."""


@dataclass(frozen=True)
class Served:
    """What a server says about itself."""

    root: str
    """The address that the token is for."""
    wire: Wire
    model: str = ""
    """A model's repository, where it says so."""
    revision: str = ""
    """A commit of that repository, where it says so: TGI, and Hugging Face of its endpoints."""
    price: float | None = None
    """US dollars an hour, where somebody says so: Hugging Face of its endpoints."""


async def ask_what_it_speaks(http: Http, root: str, model: str, retry: Retry) -> Served:
    """What the server at ``root`` speaks: TGI's protocol, or OpenAI's.

    Args:
        http: a connection to it.
        root: its address; ``/v1`` at the end is that of OpenAI's routes.
        model: the name that the user gave, or ""; a server with but one model is asked for that one.
        retry: a server that wakes up is waited for.

    Raises:
        Fault: it speaks neither (the text says what it answered), refuses the token, cannot be reached, or
            serves several models and none of them was named.
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
    # Its list of models is that of a cache, not of what it serves, and fails where there is no cache.
    if _is_transformers_serve(await ask(f"{base}/openapi.json")):
        return Served(root, OpenAi(f"{base}/v1/completions", model, "transformers"), model)
    for prefix in (f"{base}/v1", base):
        listed = await ask(f"{prefix}/models")
        if isinstance(listed, dict) and isinstance(listed.get("data"), list):
            models = [entry for entry in listed["data"] if isinstance(entry, dict)]
            return _openai(root, base, prefix, models, model)
    raise Fault(
        f"speaks neither TGI's protocol nor OpenAI's: it {'; it '.join(answers) or 'answers with other JSON'}",
        fatal=True,
    )


def _openai(root: str, base: str, prefix: str, models: list[dict[str, Any]], wanted: str) -> Served:
    dialect: Dialect = "other"
    for entry in models:
        dialect = DIALECTS.get(str(entry.get("owned_by")), dialect)
    names = [str(entry["id"]) for entry in models if entry.get("id")]
    model = wanted if wanted in names or len(names) != 1 else names[0]
    if len(names) > 1 and model not in names:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise Fault(
            f"serves {listed}{f', and no {wanted}' if wanted else ''}: name one (`model`)", fatal=True
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
    behind = str(entry.get("root") or "")  # vLLM: what it loaded under that name
    return Served(root, wire, behind if re.fullmatch(REPOSITORY, behind) else model)


def _is_transformers_serve(described: Any) -> bool:
    paths = described.get("paths") if isinstance(described, dict) else None
    return isinstance(paths, dict) and {"/load_model", "/v1/completions"} <= paths.keys()
