"""Finds out which protocol a server uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pytest_kernelllm.models.endpoint.address import Address
from pytest_kernelllm.models.endpoint.chat import Chat
from pytest_kernelllm.models.endpoint.openai import DIALECTS, Dialect, OpenAi, Prices
from pytest_kernelllm.models.endpoint.tgi import Tgi
from pytest_kernelllm.models.endpoint.wire import Wire, number
from pytest_kernelllm.models.protocol import continues_text
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry

Protocol = Literal["auto", "chat", "completions", "tgi"]
"""What to speak to a server, see the setting ``protocol``."""

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


async def detect_protocol(
    http: Http, root: str, model: str, retry: Retry, protocol: Protocol = "auto", repository: str = ""
) -> Served:
    """Finds out which protocols the server at ``root`` offers, and chooses one.

    Args:
        http: a connection to it.
        root: its address; a ``/v1`` at the end belongs to OpenAI's routes.
        model: the name that the user gave, or ""; a server with a single model is asked for that one.
        retry: waits for a server that is starting.
        protocol: the one to use; ``auto`` goes by the model (``continues_text``) and by what the server has.
        repository: the model that is served, where that is known.

    Raises:
        Fault: it uses no known protocol (the text contains its answers), refuses the token, cannot be reached,
            or serves several models, none of which was named.
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
        return _tgi(root, base, info, repository or model, protocol)
    described = await ask(f"{base}/openapi.json")
    paths = described.get("paths") if isinstance(described, dict) else None
    routes = frozenset(paths) if isinstance(paths, dict) else frozenset[str]()
    # The list of models of `transformers serve` describes a cache, not what it serves, and fails without a cache.
    if {"/load_model", "/v1/completions"} <= routes:
        chats = protocol == "chat" or (protocol == "auto" and not continues_text(repository or model))
        return Served(root, _wire(chats, f"{base}/v1", model, "transformers"), model)
    for prefix in (f"{base}/v1", base):
        listed = await ask(f"{prefix}/models")
        if isinstance(listed, dict) and isinstance(listed.get("data"), list):
            models = [entry for entry in listed["data"] if isinstance(entry, dict)]
            return await _openai(http, root, prefix, models, model, repository or model, protocol, routes)
    if protocol in ("chat", "completions"):  # some providers list no models
        prefix = root if urlsplit(root).path else f"{root}/v1"
        return Served(root, _wire(protocol == "chat", prefix, model), model)
    raise Fault(
        f"uses neither TGI's protocol nor OpenAI's: it {'; it '.join(answers) or 'answered with other JSON'}",
        fatal=True,
    )


async def routed_chat(http: Http, root: str, address: Address, retry: Retry) -> Served:
    """Returns how Hugging Face's router chats with a model, at one provider or at the one that it chooses.

    Args:
        http: a connection to the router.
        root: its address, which ends in ``/v1``.
        address: ``hf-model:OWNER/MODEL[:PROVIDER]``.
        retry: repeats what fails in passing.

    Raises:
        Fault: no provider chats with this model, or the router does not answer.
    """
    listed = await retry(lambda: http.ask("GET", f"{root}/models"))
    entries = listed.get("data") if isinstance(listed, dict) else None
    entry = next((e for e in entries or () if isinstance(e, dict) and e.get("id") == address.name), {})
    offers = [o for o in entry.get("providers") or () if isinstance(o, dict) and o.get("status") == "live"]
    names = [str(offer.get("provider")) for offer in offers]
    if address.provider:
        offers = [offer for offer in offers if offer.get("provider") == address.provider]
    if not offers:
        known = f"; those that do: {', '.join(names)}" if names else ""
        raise Fault(
            f"has no {address.provider or 'provider'} that chats with {address.name}{known}", fatal=True
        )
    prices = None
    if len(offers) == 1:  # else it is not known which of them answers
        for_a_million = offers[0].get("pricing") or {}
        prices = _prices(for_a_million, "input", "output", 1e6)
    model = f"{address.name}:{address.provider}" if address.provider else address.name
    return Served(root, _wire(True, root, model, prices=prices), address.name)


def _tgi(root: str, base: str, info: dict[str, Any], model: str, protocol: Protocol) -> Served:
    served, context = info["model_id"], number(info, "max_total_tokens")
    revision = str(info.get("model_sha") or "")
    if protocol in ("tgi", "auto") and (protocol == "tgi" or continues_text(_named(served, model))):
        wire: Wire = Tgi(f"{base}/generate_stream", f"{base}/tokenize", context)
    else:
        wire = _wire(protocol != "completions", f"{base}/v1", served, "tgi", context=context, many=False)
    return Served(root, wire, served, revision)


def _wire(chats: bool, prefix: str, model: str, dialect: Dialect = "other", **more: Any) -> OpenAi:
    if chats:
        return Chat(f"{prefix}/chat/completions", model, dialect, **more)
    return OpenAi(f"{prefix}/completions", model, dialect, **more)


async def _openai(
    http: Http,
    root: str,
    prefix: str,
    models: list[dict[str, Any]],
    requested: str,
    known_as: str,
    protocol: Protocol,
    routes: frozenset[str],
) -> Served:
    if protocol == "tgi":
        raise Fault("does not speak TGI's protocol: set `protocol` to auto", fatal=True)
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
    behind = str(entry.get("root") or "")  # vLLM: the repository that it loaded under that name
    served = behind if re.fullmatch(REPOSITORY, behind) else model
    base = root.removesuffix("/v1")
    made = {
        chats: _wire(
            chats,
            prefix,
            model,
            dialect,
            tokenize=f"{base}/tokenize" if dialect in ("vllm", "sglang", "llamacpp") else "",
            context=number(entry, "max_model_len", "context_length") or number(meta or {}, "n_ctx"),
            prices=_prices(entry.get("pricing"), "prompt", "completion"),  # as OpenRouter lists them
        )
        for chats in (False, True)
    }
    if protocol != "auto":
        return Served(root, made[protocol == "chat"], served)
    preferred = made[not continues_text(_named(served, known_as))]
    other = made[not preferred.chats]
    # These have both; whoever is not known is asked.
    known = dialect in ("vllm", "sglang", "llamacpp", "ollama")
    if not known and not await _has(http, preferred, routes) and await _has(http, other, routes):
        return Served(root, other, served)
    return Served(root, preferred, served)


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


def _prices(listed: Any, prompt: str, answer: str, tokens: float = 1) -> Prices | None:
    """Reads prices in US dollars for so many tokens; None if they are not stated."""
    try:
        return Prices(float(listed[prompt]) / tokens, float(listed[answer]) / tokens)
    except (KeyError, TypeError, ValueError):
        return None
