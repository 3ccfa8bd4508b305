from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest
from serving import Server

S = TypeVar("S", bound=Server)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[S], S]]:
    """Closes servers at the test's end; no token and no proxy of the developer's gets in."""
    for name in (
        "HF_TOKEN",
        "KERNELLLM_ENDPOINT_TOKEN",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:

        def start(server: S) -> S:
            stack.callback(server.close)
            return server

        yield start
