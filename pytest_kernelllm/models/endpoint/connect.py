"""Finds out which protocol a server uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pytest_kernelllm.models.endpoint.openai import DIALECTS, Dialect, OpenAi, Prices
from pytest_kernelllm.models.endpoint.responses import Responses
from pytest_kernelllm.models.endpoint.wire import number
from pytest_kernelllm.models.protocol import chats_with
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry

Protocol = Literal["auto", "chat", "responses", "completions"]
"""What to speak to a server, see the setting ``protocol``."""

_ROUTES = {"chat": "chat/completions", "responses": "responses", "completions": "completions"}

REPOSITORY = r"[\w.-]+/[\w.-]+"
"""Name of a model's repository, as opposed to a folder."""


@dataclass(frozen=True)
class Served:
    """A server's protocol and what it reports about its model."""

    root: str
    """The address that the token is for."""
    wire: OpenAi
    model: str = ""
    """The model's repository, if the server reports it."""
    revision: str = ""
    """The commit of that repository, if reported: by TGI, and by Hugging Face for its endpoints."""
    price: float | None = None
    """US dollars an hour, if reported: by Hugging Face for its endpoints."""


async def detect_protocol(
    http: Http, root: str, model: str, retry: Retry, protocol: Protocol, repository: str
) -> Served:
    """Finds out which routes the server at ``root`` has, and chooses one by ``protocol``, the model, and what there is.

    ``model`` is the name that the user gave, or ""; a server with a single model is asked for that one. ``repository`` is
    what is served, where that is known.
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
        served = info["model_id"]
        wire = openai(_spoken(protocol, _named(served, repository or model)), f"{base}/v1", served, "tgi")
        return Served(root, wire, served, str(info.get("model_sha") or ""))
    described = await ask(f"{base}/openapi.json")
    paths = described.get("paths") if isinstance(described, dict) else None
    routes = frozenset(paths) if isinstance(paths, dict) else frozenset[str]()
    # The list of models of `transformers serve` describes a cache, not what it serves, and fails without a cache.
    if {"/load_model", "/v1/completions"} <= routes:
        spoken = _spoken(protocol, repository or model)
        return Served(root, openai(spoken, f"{base}/v1", model, "transformers"), model)
    for prefix in (f"{base}/v1", base):
        listed = await ask(f"{prefix}/models")
        if isinstance(listed, dict) and isinstance(listed.get("data"), list):
            entries = [entry for entry in listed["data"] if isinstance(entry, dict)]
            break
    else:
        if protocol != "auto":  # some providers list no models
            prefix = root if urlsplit(root).path else f"{root}/v1"
            return Served(root, openai(protocol, prefix, model), model)
        said = "; it ".join(answers) or "answered with other JSON"
        raise Fault(f"does not speak OpenAI's protocol: it {said}", fatal=True)
    entry = _entry(entries, model)
    served = str(entry["id"]) if entry else model
    behind = str(entry.get("root") or "")  # vLLM: the repository that it loaded under that name
    known_as = behind if re.fullmatch(REPOSITORY, behind) else served
    owners = [DIALECTS[str(each.get("owned_by"))] for each in entries if each.get("owned_by") in DIALECTS]
    dialect = owners[-1] if owners else "other"
    prices = _prices(entry.get("pricing"))
    spoken = _spoken(protocol, _named(known_as, repository or model))
    # Known ones have what they need; whoever is not known is asked.
    if protocol == "auto" and dialect == "other":
        for each in sorted(_ROUTES, key=lambda name: name != spoken):
            if await _has(http, openai(each, prefix, served), routes):
                spoken = each
                break
    return Served(root, openai(spoken, prefix, served, dialect, prices), known_as)


def openai(
    spoken: str, prefix: str, model: str, dialect: Dialect = "other", prices: Prices | None = None
) -> OpenAi:
    """Returns one of OpenAI's protocols, ``chat``, ``responses`` or ``completions``, with its route below ``prefix``."""
    made = Responses if spoken == "responses" else OpenAi
    return made(f"{prefix}/{_ROUTES[spoken]}", model, spoken != "completions", dialect, prices)


def _spoken(protocol: Protocol, model: str) -> str:
    """Returns what a model is asked by, as far as the setting and its name say."""
    if protocol != "auto":
        return protocol
    return "chat" if chats_with(protocol, model) else "completions"


def _entry(listed: list[dict[str, Any]], requested: str) -> dict[str, Any]:
    """Returns the model to ask for, of those that a server lists; an empty entry if it lists none."""
    by_name = {str(entry["id"]): entry for entry in listed if entry.get("id")}
    if requested in by_name or len(by_name) < 2:
        return by_name.get(requested) or next(iter(by_name.values()), {})
    names = ", ".join([*by_name][:8]) + (", …" if len(by_name) > 8 else "")
    other = f", but not {requested}" if requested else ""
    raise Fault(f"serves {names}{other}: name one with `model`", fatal=True)


def _named(served: str, requested: str) -> str:
    """Returns the model's name; a server that was started with a folder reports the folder."""
    return requested if not served or served.startswith("/") else served


async def _has(http: Http, wire: OpenAi, routes: frozenset[str]) -> bool:
    """Whether a server has a route: by its description, or by what it answers to a request without a prompt."""
    if routes:
        return urlsplit(wire.url).path in routes
    try:
        await http.ask("POST", wire.url, {"model": wire.model})
    except Fault as fault:
        return fault.status not in (404, 405, 501)
    return True


def _prices(listed: Any) -> Prices | None:
    """Reads prices in US dollars for a token, as OpenRouter lists them; None if they are not stated."""
    try:
        return Prices(float(listed["prompt"]), float(listed["completion"]))
    except (KeyError, TypeError, ValueError):
        return None
