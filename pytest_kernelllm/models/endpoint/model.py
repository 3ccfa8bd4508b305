"""``EndpointModel``: a language model behind a server."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint.address import Address, parse
from pytest_kernelllm.models.endpoint.background import in_background
from pytest_kernelllm.models.endpoint.faults import refusal
from pytest_kernelllm.models.endpoint.tokens import find_token
from pytest_kernelllm.models.protocol import Answer, Ask, Prompt, Sampling, chats_with
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.retry import AsyncClock, RequestLimits, Retry, SystemClock
from pytest_kernelllm.web.secret import Secret

if TYPE_CHECKING:
    from pytest_kernelllm.models.endpoint.connect import Protocol, Served
    from pytest_kernelllm.models.endpoint.openai import OpenAi
    from pytest_kernelllm.models.endpoint.sampler import Sampler
    from pytest_kernelllm.web.http import Http

T = TypeVar("T")

_BILLS = " An endpoint that scaled to zero bills by the hour from the moment it starts."


def open_endpoint(
    where: str,
    *,
    model: str = "",
    concurrency: int = 8,
    wake_timeout: float = 600.0,
    protocol: Protocol = "auto",
    token: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    environ: Mapping[str, str] | None = None,
    limits: RequestLimits | None = None,
    clock: AsyncClock | None = None,
) -> EndpointModel:
    """Opens a model behind a server. Nothing is sent before its first use.

    Args:
        where: ``https://HOST[/PREFIX]``, ``hf:[NAMESPACE/]NAME`` (a Hugging Face endpoint by its name) or
            ``hf-model:OWNER/MODEL[:PROVIDER]`` (a provider that serves that model).
        model: the server's name for the model; required if it serves several. A server with a single model is
            asked for that one, and ``progress`` is called if it is another.
        concurrency: requests at the same time.
        wake_timeout: seconds to wait for a server that is starting.
        protocol: what to speak; ``auto`` chats, except with KernelLLM and servers that do not.
        token: sent to the server instead of ``KERNELLLM_ENDPOINT_TOKEN``; for Hugging Face's servers
            ``HF_TOKEN`` and ``hf auth login`` come next.
        progress: called with one line at a time: what is waited for, and what that costs.
        environ: where tokens are looked up; by default this process's environment.
        limits: of time and retries; its ``wake`` is replaced by ``wake_timeout``.
        clock: measures the waiting.

    Raises:
        GenerateError: ``where`` cannot be parsed, or the extra is not installed.
    """
    missing = [name for name in ("httpx2", "huggingface_hub") if find_spec(name) is None]
    if missing:
        raise GenerateError(
            f"An endpoint needs {' and '.join(missing)}: pip install 'pytest-kernelllm[endpoint]'."
        )
    address = parse(where)
    found = find_token(token, address.hugging_face, os.environ if environ is None else environ)
    # The price of a named endpoint is looked up when it is started.
    hint = _BILLS if address.hugging_face and address.kind == "url" else ""
    retry = Retry(
        replace(limits or RequestLimits(), wake=wake_timeout),
        clock or SystemClock(),
        lambda clause: progress(f"The endpoint {clause}"),
        hint,
    )
    return EndpointModel(address, model, concurrency, found, retry, progress, protocol)


class EndpointModel:
    """A model behind a server (``LanguageModel``).

    Greedy answers (temperature 0) repeat, and samples if the server honours ``seed``: each is one request with a seed of its
    own. No server guarantees that across versions, hardware or load, and ``transformers serve`` has one seed for all
    concurrent requests: there only ``concurrency=1`` repeats.
    """

    name: str
    """The model, as given or as the server reports it; until then the endpoint."""
    revision: str
    """The commit that is served, if reported (TGI, ``hf:NAME``); known after the first use."""

    def __init__(
        self,
        address: Address,
        model: str,
        concurrency: int,
        token: Secret | None,
        retry: Retry,
        progress: Callable[[str], None],
        protocol: Protocol,
    ) -> None:
        """Use ``open_endpoint``."""
        self._protocol = protocol
        self._address = address
        self._model = model
        self._concurrency = concurrency
        self._token = token
        self._retry = retry
        self._progress = progress
        self._lock = threading.Lock()
        self._known: Served | None = None
        self._wire: OpenAi
        """The server's protocol, without what it turned out not to take; set with ``_known``."""
        self.name = model or (address.name if address.kind == "hf-model" else address.shown)
        self.revision = ""

    def identity(self) -> str:
        """Returns address and model; the revision is not known without a request."""
        spoken = "" if self._protocol == "auto" else f" {self._protocol}"
        return f"endpoint {self._address.shown} {self._model}".rstrip() + spoken

    def takes_messages(self) -> bool:
        """Returns whether the server is chatted with, which it may have to be asked."""
        return self._served().wire.chats

    def template(self) -> str | None:
        """Returns the prompt template in the served model's repository; None if it is not available.

        Raises:
            GenerateError: no model is named, and the server that would name it does not answer.
        """
        from pytest_kernelllm.models.endpoint.connect import REPOSITORY
        from pytest_kernelllm.models.endpoint.hub import script_of
        from pytest_kernelllm.models.prompt import template_of

        repository, revision = self._model or self._address.name, ""
        if not self._model and self._address.kind != "hf-model":
            served = self._served()
            repository, revision = served.model, served.revision
        if not re.fullmatch(REPOSITORY, repository):
            return None
        script = script_of(repository, revision)
        return None if script is None else template_of(script)

    def too_long(self, prompt: Prompt, sampling: Sampling) -> str | None:
        """Returns None: a server says itself that a prompt is too long."""

    def answers(self, asks: Sequence[Ask], sampling: Sampling) -> Iterator[Answer]:
        """Yields samples as they arrive, each retried within limits; failed ones state the reason.

        Raises:
            GenerateError: nothing arrived, for a reason that applies to every sample.
        """
        served = self._served()

        async def sample(sampler: Sampler, emit: Callable[[Answer], None]) -> None:
            await sampler.run(asks, self._concurrency, emit)

        last = self._retry.clock.now()
        for answer in self._sampled(sampling, sample):
            now = self._retry.clock.now()
            yield answer if served.price is None else replace(answer, cost=served.price * (now - last) / 3600)
            last = now

    def stream(self, prompt: Prompt, sampling: Sampling, index: int = 0) -> Iterator[str]:
        """Yields the pieces of a sample as it is generated. It is retried only before the first piece.

        Raises:
            GenerateError: the request fails, or the stream breaks off.
        """

        async def write(sampler: Sampler, emit: Callable[[str], None]) -> None:
            await sampler.stream(prompt, index, emit)

        yield from self._sampled(sampling, write)

    def _sampled(
        self, sampling: Sampling, work: Callable[[Sampler, Callable[[T], None]], Coroutine[Any, Any, None]]
    ) -> Iterator[T]:
        """Yields what ``work`` emits of a sampler, and remembers what the server does not take."""
        served = self._served()

        async def produce(emit: Callable[[T], None]) -> None:
            from pytest_kernelllm.models.endpoint.sampler import Sampler

            async with self._http(served.root) as http:
                sampler = Sampler(
                    http, self._wire, self._address.shown, sampling, self._retry, self._progress
                )
                try:
                    await work(sampler, emit)
                finally:
                    self._wire = sampler.wire

        return self._all(produce)

    def release(self) -> None:
        """Does nothing: the memory is the server's."""

    def stop(self) -> None:
        """Does nothing: a thread that waits for a server may end with its process."""

    def _served(self) -> Served:
        with self._lock:
            if self._known is None:
                self._known = next(self._all(self._connect))
                self._wire = self._known.wire
                self.revision = self._known.revision
                self._learn_name(self._known.model)
            return self._known

    def _learn_name(self, reported: str) -> None:
        # A server that was started with a folder reports the folder, which does not identify the model.
        if not reported or reported.startswith("/"):
            return
        if self._model not in ("", reported) and not reported.endswith(".gguf"):
            self._progress(
                f"The endpoint {self._address.shown} reports that it serves {reported}, not {self._model}."
            )
        self.name = reported

    async def _connect(self, emit: Callable[[Served], None]) -> None:
        from pytest_kernelllm.models.endpoint.connect import Served, detect_protocol, openai
        from pytest_kernelllm.models.endpoint.hub import HuggingFaceHub, Location

        address, place = self._address, Location(self._address.url)
        hub = HuggingFaceHub(self._token, self._retry.limits, self._retry.clock, self._progress)
        if address.kind == "hf-model":
            if not chats_with(self._protocol, address.name):
                raise Fault(
                    f"has no provider that completes text with {address.name}: deploy it as an endpoint of your own (hf:NAME),"
                    " serve it yourself, or set `protocol` to chat",
                    fatal=True,
                )
            url = hub.router()
            model = f"{address.name}:{address.provider}" if address.provider else address.name
            spoken = "chat" if self._protocol == "auto" else self._protocol
            emit(Served(url, openai(spoken, url, model), address.name))
            return
        if address.kind == "hf":
            place = await hub.wake(address)
        async with self._http(place.url) as http:
            served = await detect_protocol(
                http, place.url, self._model, self._retry, self._protocol, place.model
            )
        if place.model:
            served = Served(served.root, served.wire, place.model, place.revision, place.price)
        emit(served)

    def _http(self, root: str) -> Http:
        from pytest_kernelllm.web.http import Http

        token, login = self._token, self._address.login
        return Http(root, partial(refusal, had_token=bool(token or login)), self._retry.limits, token, login)

    def _all(
        self, produce: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]
    ) -> Generator[T, None, None]:
        async def guarded(emit: Callable[[T | GenerateError], None]) -> None:
            try:
                await produce(emit)
            except Fault as fault:
                # Passed on, not raised, so that the error has no chain of others.
                emit(GenerateError(f"The endpoint {self._address.shown} {fault.reason}."))

        with closing(in_background(guarded)) as items:
            for item in items:
                if isinstance(item, GenerateError):
                    raise item
                yield item
