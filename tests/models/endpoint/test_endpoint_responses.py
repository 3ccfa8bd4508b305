"""The Responses API: when it is spoken, what is sent, and what comes back beside text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from serving import FakeClock, Scripted, written

from pytest_kernelllm.models.endpoint import EndpointModel, open_endpoint
from pytest_kernelllm.models.protocol import Answer, Ask, Message, Sampling

pytestmark = pytest.mark.slow

Serve = Callable[[Any], Any]
SHORT = Sampling(0.5, 0.9, max_new_tokens=64)
TALK = (Message("system", "be brief"), Message("user", "hello"))


def opened(server: Scripted, **options: Any) -> EndpointModel:
    return open_endpoint(server.url, clock=FakeClock(), environ={}, **options)


def answered(server: Scripted, **options: Any) -> Answer:
    (answer,) = opened(server, **options).answers([Ask(TALK, (0,))], SHORT)
    return answer


def speaking(**options: Any) -> Scripted:
    return Scripted(speaks="responses", models=("gpt-next",), owner="somebody", **options)


def test_it_is_spoken_where_a_server_has_nothing_else(serve: Serve) -> None:
    server = serve(speaking())
    answer = answered(server)
    assert opened(server).takes_messages()
    assert answer.text == written("hello", None, 0)
    assert (answer.finish, answer.tokens, answer.prompt_tokens) == ("stop", len(answer.text), len("hello"))
    assert [seen.body for seen in server.posts("/v1/responses") if "input" in seen.body] == [
        {
            "model": "gpt-next",
            "input": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
            "stream": True,
            "store": False,
            "max_output_tokens": 64,
            "temperature": 0.5,
            "top_p": 0.9,
        }
    ]


def test_it_can_be_set_and_no_route_is_tried(serve: Serve) -> None:
    server = serve(speaking())
    assert opened(server, protocol="responses").identity() == f"endpoint {server.url} responses"
    assert answered(server, protocol="responses").finish == "stop"
    assert len(server.posts()) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_reasoning_is_kept_apart_from_the_text(serve: Serve, whole: bool) -> None:
    said = {"reasoning": "let me think", "text": "the answer", "whole": whole}
    answer = answered(serve(speaking(says=lambda body: said)))
    assert (answer.text, answer.reasoning, answer.note) == ("the answer", "let me think", "")
    assert answer.tokens == len("let me think") + len("the answer")


@pytest.mark.parametrize(
    ("said", "finish", "note"),
    [
        ({"items": [{"type": "function_call", "name": "run"}]}, "stop", "called a tool"),
        ({"items": [{"type": "web_search_call"}]}, "stop", "called a tool"),
        (
            {"items": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]},
            "stop",
            "refuses to answer",
        ),
        (
            {
                "reasoning": "hm",
                "response": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                },
            },
            "length",
            "",
        ),
        (
            {"response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}},
            "stop",
            "content filter",
        ),
    ],
)
def test_an_answer_without_text_says_why(serve: Serve, said: Any, finish: str, note: str) -> None:
    server = serve(speaking(says=lambda body: said))
    answer = answered(server, protocol="responses")
    assert (answer.text, answer.finish) == ("", finish)
    assert note in answer.note
    assert len(server.posts()) == 1, "it came, so it is not asked for again"


def test_an_answer_that_fails_is_asked_for_again(serve: Serve) -> None:
    broken = {"text": "half", "response": {"status": "failed", "error": {"message": "out of luck"}}}
    said = iter([broken])
    server = serve(speaking(says=lambda body: next(said, {"text": "whole"})))
    answer = answered(server, protocol="responses")
    assert (answer.text, answer.finish) == ("whole", "stop")


def test_what_a_model_does_not_take_is_left_out(serve: Serve) -> None:
    server = serve(speaking(refuses=("temperature", "top_p", "max_output_tokens")))
    lines: list[str] = []
    assert answered(server, protocol="responses", progress=lines.append).finish == "stop"
    assert len(lines) == 3
    assert not {"temperature", "top_p", "max_output_tokens"} & server.posts()[-1].body.keys()


def test_an_answer_costs_what_the_server_states(serve: Serve) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "cost": 0.25}
    server = serve(speaking(says=lambda body: {"text": "x", "response": {"usage": usage}}))
    assert answered(server, protocol="responses").cost == 0.25
