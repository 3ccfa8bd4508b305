from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from serving import SECRET, FakeClock, Proxy, Scripted, Seen, Server, free_port, send, send_events, written

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import EndpointModel, open_endpoint
from pytest_kernelllm.models.endpoint.wire import seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, Sampling
from pytest_kernelllm.web.retry import RequestLimits

pytestmark = pytest.mark.slow

Serve = Callable[[Any], Any]
SHORT = Sampling(max_new_tokens=64)
ONE = [Ask("one", (0,))]


def opened(url: str, **options: Any) -> EndpointModel:
    defaults = {"clock": FakeClock(), "environ": {}, "token": SECRET, "limits": RequestLimits(idle=0.3)}
    return open_endpoint(url, **(defaults | options))


def is_right(answer: Answer) -> bool:
    return answer.finish == "stop" and answer.text == written("one", seed_of(SHORT, answer.index), 0)


SPOKEN = {"openai": "completions", "tgi": "completions", "chat": "chat"}
"""The setting `protocol` for what a scripted server speaks."""

TOO_MANY = (429, {"error": "Model is overloaded", "error_type": "overloaded"}, {})
PASSING: dict[str, Any] = {
    "503": (503, {"error": "loading"}, {}),
    "502": "html",
    "504": (504, "upstream timed out", {}),
    "500": (500, "Internal Server Error", {}),
    "429": TOO_MANY,
    "hang": "hang",
    "cut": "cut",
    "reset": "reset",
    "no json": "no-json",
    "odd json": "odd-json",
    "a page in place of an answer": (200, "<html><title>Sign in</title></html>", {}),
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("speaks", ["openai", "chat"])
def test_what_passes_is_met_by_another_try_with_the_same_seed(serve: Serve, speaks: str, fault: str) -> None:
    proxy = serve(Proxy(serve(Scripted(speaks=speaks)).url, [PASSING[fault]] * 2))
    clock = FakeClock()
    (answer,) = opened(proxy.url, clock=clock, protocol=SPOKEN[speaks]).answers(ONE, SHORT)
    assert is_right(answer)
    assert clock.slept == [0.5, 1.0], "pauses grow"
    assert len(proxy.posts()) == 3


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("speaks", ["openai", "chat"])
def test_what_does_not_pass_fails_the_sample_with_a_sentence(serve: Serve, speaks: str, fault: str) -> None:
    proxy = serve(Proxy(serve(Scripted(speaks=speaks, owner="somebody")).url))
    proxy.faults = ["pass"]
    proxy.always = PASSING[fault]
    model = opened(proxy.url, wake_timeout=60, protocol=SPOKEN[speaks])
    answers = list(model.answers([Ask("one", (0,)), Ask("one", (1, 2))], SHORT))
    assert sorted(a.index for a in answers) == [0, 1, 2], "what arrived is kept"
    assert [a.finish for a in answers].count("stop") in (1, 2)
    for answer in answers:
        if answer.finish == "failed":
            assert answer.text == ""
            assert answer.note.startswith(f"The endpoint {proxy.url} ")
            assert answer.note.endswith(".")
            assert "\n" not in answer.note
            assert "5 tries" in answer.note or (fault == "503" and "of at most 60 s" in answer.note)
            assert "<" not in answer.note
            assert "secret page" not in answer.note
    notes = {a.note for a in answers if a.note}
    assert len(notes) == 1
    if fault == "502":
        assert "502: a web page titled “Bad gateway & more”" in notes.pop()


def test_the_pause_a_server_asks_for_is_kept(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, [(429, "", {"Retry-After": "7"})]))
    clock = FakeClock()
    (answer,) = opened(proxy.url, clock=clock).answers(ONE, SHORT)
    assert is_right(answer)
    assert clock.slept == [7.0]


def test_the_pause_may_be_given_as_a_date(serve: Serve) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    proxy = serve(Proxy(serve(Scripted()).url, [(429, "", {"Retry-After": date})]))
    clock = FakeClock()
    (answer,) = opened(proxy.url, clock=clock).answers(ONE, SHORT)
    assert is_right(answer)
    assert 60 < clock.slept[0] <= 100


def test_a_pause_beyond_all_patience_is_not_waited_for(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, [(429, "", {"Retry-After": "3600"})]))
    clock = FakeClock()
    (answer,) = opened(proxy.url, clock=clock).answers(ONE, SHORT)
    assert answer.finish == "failed"
    assert "asks for a pause of 3600 s, given up after 0 of at most 900 s" in answer.note
    assert clock.slept == []


def test_a_server_that_is_waking_is_waited_for_and_people_are_told(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, [(503, "", {})] * 30, about="GET POST"))
    clock, lines = FakeClock(), []
    (answer,) = opened(proxy.url, clock=clock, progress=lines.append).answers(ONE, SHORT)
    assert is_right(answer)
    assert 300 < sum(clock.slept) < 600
    assert 10 < len(lines) < 30
    assert lines[0] == "The endpoint is not ready (503 Service Unavailable): waited 0 of at most 600 s."


@pytest.mark.parametrize("first", [0, 6])
def test_a_server_that_never_wakes_ends_in_one_error(serve: Serve, first: int) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, ["pass"] * first, about="GET POST"))
    proxy.always = (503, {"error": "no replica"}, {})
    clock = FakeClock()
    with pytest.raises(
        GenerateError, match=r"is not ready \(503: no replica\) \(given up after \d+ of at most 90 s\)"
    ):
        list(
            opened(proxy.url, clock=clock, wake_timeout=90, model="").answers([], SHORT) if first else []
        ) or list(opened(proxy.url, clock=clock, wake_timeout=90).answers(ONE, SHORT))
    assert 60 < sum(clock.slept) <= 90


def test_nobody_listening_is_one_error(serve: Serve) -> None:
    clock = FakeClock()
    with pytest.raises(GenerateError, match=r"127.0.0.1:\d+ cannot be reached: .+ \(5 tries\)\.$"):
        list(opened(f"http://127.0.0.1:{free_port()}", clock=clock).answers(ONE, SHORT))
    assert len(clock.slept) == 4


def test_a_host_that_does_not_exist_is_one_error() -> None:
    with pytest.raises(GenerateError, match="cannot be reached"):
        list(opened("https://nowhere.invalid").answers(ONE, SHORT))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ((401, {"error": "Invalid credentials"}, {}), r"refused the token \(401: Invalid credentials\)"),
        ((403, {"error": "gated"}, {}), r"denies access with this token \(403: gated\)"),
        ((402, {"error": "no credits left"}, {}), r"answered: payment required \(402: no credits left\)"),
        (
            (404, {"error": {"message": "The model `x` does not exist."}}, {}),
            r"no such route or model: POST .*x.* does not exist",
        ),
        ((405, {"detail": "Method Not Allowed"}, {}), "no such route or model"),
        ((400, {"detail": "Server is pinned to 'a'; requested 'b'."}, {}), "pinned to 'a'"),
    ],
)
@pytest.mark.parametrize("speaks", ["openai", "chat"])
def test_what_holds_for_every_sample_is_one_error_without_further_tries(
    serve: Serve, fault: Any, says: str, speaks: str
) -> None:
    proxy = serve(Proxy(serve(Scripted(speaks=speaks)).url))
    proxy.always = fault
    with pytest.raises(GenerateError, match=says):
        list(
            opened(proxy.url, concurrency=1, protocol=SPOKEN[speaks]).answers(
                [Ask("one", (i,)) for i in range(5)], SHORT
            )
        )
    assert len(proxy.posts()) == 1


def test_a_token_that_is_wanted_and_missing_is_asked_for(serve: Serve) -> None:
    server = serve(
        Scripted(refuse=lambda seen: None if "authorization" in seen.headers else (401, "who are you?"))
    )
    with pytest.raises(
        GenerateError, match=r"requires a token \(401: who are you\?\): set KERNELLLM_ENDPOINT_TOKEN"
    ):
        list(opened(server.url, token=None).answers(ONE, SHORT))
    (answer,) = opened(server.url).answers(ONE, SHORT)
    assert is_right(answer)


def test_a_token_that_is_withdrawn_in_between_keeps_what_arrived_and_asks_no_more(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted(speaks="tgi")).url, ["pass", "pass"]))
    proxy.always = (401, "", {})
    answers = list(opened(proxy.url, concurrency=1).answers([Ask("one", tuple(range(6)))], SHORT))
    assert [a.finish for a in answers] == ["stop", "stop", *["failed"] * 4]
    assert all("refused the token" in a.note for a in answers[2:])
    assert len(proxy.posts()) == 3


@pytest.mark.parametrize(
    ("speaks", "refusal"),
    [
        (
            "tgi",
            (
                422,
                {
                    "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9 `inputs` tokens and 5000 `max_new_tokens`",
                    "error_type": "validation",
                },
                {},
            ),
        ),
        (
            "openai",
            (
                400,
                {
                    "error": {
                        "message": "This model's maximum context length is 4096 tokens. However, you requested 5009 tokens"
                    }
                },
                {},
            ),
        ),
    ],
)
def test_a_prompt_the_server_finds_too_long_fails_alone_and_in_plain_words(
    serve: Serve, speaks: str, refusal: Any
) -> None:
    proxy = serve(Proxy(serve(Scripted(speaks=speaks)).url, [refusal]))
    answers = list(opened(proxy.url, concurrency=1).answers([Ask("long", (0,)), Ask("one", (0,))], SHORT))
    assert [a.finish for a in answers] == ["failed", "stop"]
    assert "accepts at most 4096 tokens for prompt and answer together" in answers[0].note


def test_a_stream_that_breaks_off_after_all_is_said_is_complete(serve: Serve) -> None:
    class Abrupt(Scripted):
        def _completions(self, to: Any, body: Any) -> None:
            to.send_response(200)
            to.send_header("content-type", "text/event-stream")
            to.send_header("content-length", "999999")
            to.end_headers()
            event = {"choices": [{"index": 0, "text": "all", "finish_reason": "length"}]}
            to.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            to.close_connection = True

    server = serve(Abrupt())
    (answer,) = opened(server.url).answers(ONE, SHORT)
    assert (answer.text, answer.finish) == ("all", "length")
    assert len(server.posts()) == 1


def test_an_error_in_the_middle_of_a_stream_is_no_answer(serve: Serve) -> None:
    for speaks, event in (
        ("tgi", {"error": "Request failed during generation", "error_type": "generation"}),
        ("openai", {"error": {"message": "engine died"}}),
    ):

        class Failing(Scripted):
            def handle(self, to: Any, seen: Seen, event: object = event) -> None:
                if seen.path.endswith(("stream", "completions")):
                    return send_events(to, [event])
                return super().handle(to, seen)

        (answer,) = opened(serve(Failing(speaks=speaks)).url).answers(ONE, SHORT)
        assert answer.finish == "failed"
        assert "failed in the middle of an answer (" in answer.note


def test_a_stream_for_a_reader_starts_over_only_before_its_first_piece(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, ["html", "no-json"]))
    assert "".join(opened(proxy.url).stream("one", SHORT)) == written("one", seed_of(SHORT, 0), 0)
    proxy.faults = ["cut"]
    pieces: list[str] = []
    with pytest.raises(GenerateError, match="broke the connection"):
        pieces.extend(opened(proxy.url).stream("one", SHORT))
    assert pieces
    assert written("one", seed_of(SHORT, 0), 0).startswith("".join(pieces))


def test_another_protocol_is_named_with_what_was_asked_and_answered(serve: Serve) -> None:
    class Page(Server):
        def handle(self, to: Any, seen: Seen) -> None:
            if seen.path == "/info":
                send(to, 200, {"model_id": "an/embedder", "model_type": {"embedding": {}}})
            else:
                send(
                    to,
                    *(
                        (200, "<html><title>A chat</title>hello</html>")
                        if seen.path == "/v1/models"
                        else (404, "")
                    ),
                )

    with pytest.raises(GenerateError) as raised:
        list(opened(serve(Page()).url).answers(ONE, SHORT))
    said = str(raised.value)
    assert "does not speak OpenAI's protocol" in said
    assert "GET /v1/models (200: a web page titled “A chat”)" in said
    assert "hello" not in said


class Elsewhere(Server):
    """A host that a token must never reach."""

    def handle(self, to: Any, seen: Seen) -> None:
        send(
            to,
            200,
            {
                "choices": [{"index": 0, "text": "caught", "finish_reason": "stop"}],
                "data": [],
                "model_id": "x",
                "max_total_tokens": 9,
            },
        )


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("about", ["GET", "POST"])
def test_a_redirect_to_another_host_is_not_followed(serve: Serve, code: int, about: str) -> None:
    elsewhere = serve(Elsewhere())
    target = elsewhere.url.replace("127.0.0.1", "localhost") + "/v1/models"
    proxy = serve(Proxy(serve(Scripted()).url, about=about))
    proxy.always = (code, "", {"location": target})
    with pytest.raises(
        GenerateError, match=rf"redirects \({code}\) to another address, {target}, where it is not followed"
    ):
        list(opened(proxy.url).answers(ONE, SHORT))
    assert elsewhere.seen == [], "not even asked, so no header of ours is there"


def test_a_redirect_to_another_port_or_scheme_is_not_followed(serve: Serve) -> None:
    elsewhere = serve(Elsewhere())
    proxy = serve(Proxy(serve(Scripted()).url, about="GET"))
    for target in (
        elsewhere.url,
        proxy.url.replace("http:", "https:"),
        f"//127.0.0.1:{elsewhere.port}/x",
        "ftp://127.0.0.1/",
    ):
        proxy.always = (307, "", {"location": target})
        with pytest.raises(GenerateError, match="redirects"):
            list(opened(proxy.url).answers(ONE, SHORT))
    assert elsewhere.seen == []


def test_a_redirect_within_the_host_is_followed_with_the_token(serve: Serve) -> None:
    server = serve(Scripted(prefix="/new"))
    proxy = serve(Proxy(server.url, about="GET POST"))

    def moved(to: Any, seen: Seen) -> None:
        if seen.path.startswith("/new"):
            proxy._through(to, seen, cut=False)
        else:
            send(to, 307, "", location=f"/new{seen.path}")

    proxy.handle = moved
    (answer,) = opened(proxy.url).answers(ONE, SHORT)
    assert is_right(answer)
    assert all(seen.headers["authorization"] == f"Bearer {SECRET}" for seen in server.seen)


def test_redirects_in_circles_end(serve: Serve) -> None:
    proxy = serve(Proxy(serve(Scripted()).url, about="GET"))
    proxy.always = (307, "", {"location": "/info"})
    with pytest.raises(GenerateError, match="redirects in circles"):
        list(opened(proxy.url).answers(ONE, SHORT))


def everything_said(error: BaseException) -> str:
    """All that an exception and its whole chain show to anybody who prints them, locals of frames left out."""
    said = "".join(traceback.format_exception(error))
    link: BaseException | None = error
    while link is not None:
        said += f"{link!r} {link} {link.args!r} {vars(link)!r} {getattr(link, '__notes__', '')}"
        link = link.__cause__ or link.__context__
    return said


FAULTS: list[Any] = [
    *PASSING.values(),
    "echo",
    (401, {"error": f"token {SECRET} is not known"}, {}),
    (403, f"<title>no entry for {SECRET}</title>", {}),
    (404, {"detail": f"no model for {SECRET}"}, {}),
    (422, {"detail": [{"msg": f"odd header Bearer {SECRET}", "loc": ["header"]}]}, {}),
    (429, f"slow down, {SECRET}", {"Retry-After": "9999"}),
    (307, "", {"location": f"http://localhost:9/?token={SECRET}"}),
    (303, "", {"location": f"/login/{SECRET}"}),
    (
        200,
        {
            "choices": [{"index": 0, "text": f"# {SECRET}", "finish_reason": "stop"}],
            "generated_text": f"# {SECRET}",
        },
        {},
    ),
    (
        200,
        {
            "choices": [
                {
                    "index": 0,
                    "message": {"content": f"# {SECRET}", "reasoning_content": f"my key is {SECRET}"},
                    "finish_reason": "stop",
                }
            ]
        },
        {},
    ),
    (200, f"not json: {SECRET}", {}),
    (299, "x", {f"x-{SECRET}": SECRET}),
]


@pytest.mark.parametrize("about", ["GET", "POST"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault)[:24].replace(SECRET[:8], "…"))
@pytest.mark.parametrize(
    ("speaks", "given"), [("openai", "token"), ("tgi", "login"), ("chat", "token"), ("chat", "login")]
)
def test_no_fault_shows_the_token(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    speaks: str,
    fault: Any,
    about: str,
    given: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    proxy = serve(Proxy(serve(Scripted(speaks=speaks)).url, about=about))
    proxy.always = fault
    lines: list[str] = []
    url = proxy.url if given == "token" else proxy.url.replace("//", f"//user:{SECRET}@")
    options: dict[str, Any] = {
        "token": SECRET if given == "token" else None,
        "progress": lines.append,
        "wake_timeout": 20,
        "limits": RequestLimits(idle=0.05, tries=2),
        "protocol": SPOKEN[speaks],
    }
    said = ""
    for use in (
        lambda model: list(model.answers([Ask("one", (0, 1))], SHORT)),
        lambda model: list(model.stream("one", SHORT)),
        lambda model: model.takes_messages(),
    ):
        model = opened(url, **options)
        try:
            said += repr(use(model))
        except GenerateError as error:
            said += everything_said(error)
        said += f"{model!r} {vars(model)!r} {model.identity()} {model.name} {model.revision}"
    said += "\n".join(lines) + caplog.text + "".join(capfd.readouterr())
    assert proxy.seen, "the token was at stake"
    assert any(
        SECRET in v or base64.b64encode(f"user:{SECRET}".encode()).decode() in v
        for s in proxy.seen
        for v in s.headers.values()
    )
    assert SECRET not in said
    assert base64.b64encode(f"user:{SECRET}".encode()).decode() not in said
