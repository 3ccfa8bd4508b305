from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import SECRET, FakeClock, Scripted

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import open_endpoint
from pytest_kernelllm.models.endpoint.address import parse
from pytest_kernelllm.models.endpoint.tokens import find_token, is_hugging_face
from pytest_kernelllm.models.protocol import Ask, Sampling
from pytest_kernelllm.web.secret import Redactor, Secret

Serve = Callable[[Any], Any]


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(SECRET)
    shown = f"{secret} {secret!r} {[secret]} {secret!s:>80}"
    assert SECRET not in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert Redactor([secret, None])(f"a {SECRET} b") == "a [secret] b"


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path / "token"


@pytest.mark.parametrize(
    ("given", "hugging_face", "environ", "login", "found"),
    [
        ("arg", True, {"KERNELLLM_ENDPOINT_TOKEN": "own", "HF_TOKEN": "hf"}, "file", "arg"),
        (None, True, {"KERNELLLM_ENDPOINT_TOKEN": " own\n", "HF_TOKEN": "hf"}, "file", "own"),
        (None, True, {"HF_TOKEN": "hf"}, "file", "hf"),
        (None, True, {}, "file", "file"),
        (None, True, {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, "file", None),
        (None, True, {}, "", None),
        (None, False, {"HF_TOKEN": "hf", "OPENAI_API_KEY": "sk"}, "file", None),
        (None, False, {"KERNELLLM_ENDPOINT_TOKEN": "own", "HF_TOKEN": "hf"}, "file", "own"),
    ],
)
def test_each_token_goes_only_where_it_belongs(
    no_login: Path,
    given: str | None,
    hugging_face: bool,
    environ: dict[str, str],
    login: str,
    found: str | None,
) -> None:
    if login:
        no_login.write_text(login)
    secret = find_token(given, hugging_face, environ)
    assert (secret.reveal() if secret else None) == found


@pytest.mark.parametrize(
    ("url", "hugging_face"),
    [
        ("https://x1.us-east-1.aws.endpoints.huggingface.cloud", True),
        ("https://huggingface.co/x", True),
        ("https://me-space.hf.space", True),
        ("http://x1.us-east-1.aws.endpoints.huggingface.cloud", False),
        ("https://huggingface.co.evil.test", False),
        ("https://evilhuggingface.co", False),
        ("https://huggingface.co@evil.test/", False),
        ("https://evil.test/huggingface.co", False),
        ("http://localhost:8000", False),
    ],
)
def test_hugging_faces_hosts_are_known_by_their_whole_name(url: str, hugging_face: bool) -> None:
    assert is_hugging_face(url) is hugging_face
    assert parse(url).hugging_face is hugging_face


def test_a_server_of_ones_own_is_sent_no_token_of_hugging_face(serve: Serve) -> None:
    server = serve(Scripted())
    list(open_endpoint(server.url, environ={"HF_TOKEN": SECRET}).answers([Ask("one", (0,))], Sampling()))
    assert server.seen
    assert not [seen for seen in server.seen if "authorization" in seen.headers]


@pytest.mark.parametrize("url", ["http://example.com", "http://8.8.8.8:8000/v1", "http://me:pw@example.com"])
def test_a_token_never_travels_unencrypted_over_an_open_network(url: str) -> None:
    token = None if "@" in url else SECRET
    with pytest.raises(
        GenerateError,
        match=r"would receive the token unencrypted \((example\.com|8\.8\.8\.8:8000)\): use its https",
    ):
        list(
            open_endpoint(url, token=token, environ={}, clock=FakeClock()).answers(
                [Ask("one", (0,))], Sampling()
            )
        )


@pytest.mark.parametrize(
    ("where", "shown", "url"),
    [
        ("https://Host.test:8443/a/b/", "https://host.test:8443/a/b", None),
        ("https://user:p%40ss@host.test/a", "https://host.test/a", None),
        (" http://[::1]:8000/v1 ", "http://[::1]:8000/v1", None),
        ("hf:my-endpoint", "hf:my-endpoint", ""),
        ("hf:some-org/my-endpoint", "hf:some-org/my-endpoint", ""),
        ("hf-model:facebook/KernelLLM", "hf-model:facebook/KernelLLM", ""),
        ("hf-model:facebook/KernelLLM:featherless-ai", "hf-model:facebook/KernelLLM:featherless-ai", ""),
    ],
)
def test_an_endpoint_is_known_by_its_address_without_secrets(where: str, shown: str, url: str | None) -> None:
    address = parse(where)
    assert (address.shown, address.url) == (shown, shown if url is None else url)
    assert open_endpoint(where, environ={}).identity() == f"endpoint {shown}"
    if "@" in where:
        assert address.login is not None
        assert address.login.reveal() == "user:p@ss"
        assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    "where",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "https://",
        "https://host:port",
        "https://h/?api_key=hf_secret",
        "https://h/#hf_secret",
        "hf:",
        "hf:a/b/c",
        "hf:a b",
        "hf-model:KernelLLM",
        "https://u:hf_secret@h:x/",
        "https://[::1",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(where: str) -> None:
    with pytest.raises(GenerateError) as raised:
        open_endpoint(where, environ={})
    assert "hf_secret" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_a_login_in_the_address_is_sent_as_one(serve: Serve) -> None:
    server = serve(Scripted())
    url = server.url.replace("//", "//me:pw@")
    list(open_endpoint(url, environ={}).answers([Ask("one", (0,))], Sampling()))
    assert {seen.headers["authorization"] for seen in server.seen} == {"Basic bWU6cHc="}
