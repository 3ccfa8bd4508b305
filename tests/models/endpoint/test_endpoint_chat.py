"""Conversations with servers: which protocol is spoken, what is sent, and what comes back beside text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from serving import SECRET, FakeClock, Scripted, Seen, Server, send, written

from kernelllm_judge.render.reasoning import split_reasoning
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import EndpointModel, open_endpoint
from pytest_kernelllm.models.endpoint.wire import seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, Message, Sampling

pytestmark = pytest.mark.slow

Serve = Callable[[Any], Any]
SHORT = Sampling(max_new_tokens=64)
TALK = (Message("system", "be brief"), Message("user", "hello\r\n\tworld"))
GENERAL = ("openai/gpt-oss-20b",)


def opened(url: str, **options: Any) -> EndpointModel:
    return open_endpoint(url, **({"clock": FakeClock(), "environ": {}} | options))


def answered(server: Scripted, sampling: Sampling = SHORT, count: int = 1, **options: Any) -> list[Answer]:
    model = opened(server.url, **options)
    return sorted(model.answers([Ask(TALK, tuple(range(count)))], sampling), key=lambda a: a.index)


@pytest.mark.parametrize(
    ("speaks", "models", "owner", "route"),
    [
        ("chat", GENERAL, "somebody", "/v1/chat/completions"),
        ("chat", ("facebook/KernelLLM",), "somebody", "/v1/chat/completions"),
        ("both", GENERAL, "vllm", "/v1/chat/completions"),
        ("both", GENERAL, "somebody", "/v1/chat/completions"),
        ("both", ("facebook/KernelLLM",), "vllm", "/v1/completions"),
        ("both", ("facebook/KernelLLM",), "somebody", "/v1/completions"),
        ("openai", GENERAL, "somebody", "/v1/completions"),
        ("tgi", ("facebook/KernelLLM",), "", "/v1/completions"),
    ],
)
def test_what_is_spoken_goes_by_the_model_and_by_what_the_server_has(
    serve: Serve, speaks: str, models: tuple[str, ...], owner: str, route: str
) -> None:
    server = serve(Scripted(speaks=speaks, models=models, owner=owner))
    (answer,) = answered(server)
    assert answer.finish == "stop"
    assert server.posts()[-1].path == route
    assert opened(server.url).takes_messages() is ("chat" in route)
    assert len(server.posts(route)) == 1 + 2 * (owner == "somebody"), "asked once each time"


def test_a_description_says_which_routes_there_are(serve: Serve) -> None:
    server = serve(
        Scripted(speaks="both", models=GENERAL, owner="x", routes=("/v1/completions", "/v1/models"))
    )
    assert not opened(server.url).takes_messages()
    assert server.posts() == [], "nothing has to be tried"


@pytest.mark.parametrize(
    ("protocol", "route"), [("chat", "/chat/completions"), ("completions", "v1/completions")]
)
def test_the_protocol_can_be_set_and_is_part_of_what_completions_are_stored_under(
    serve: Serve, protocol: Any, route: str
) -> None:
    server = serve(Scripted(speaks="both"))
    model = opened(server.url, protocol=protocol)
    assert model.identity() == f"endpoint {server.url} {protocol}"
    assert [a.finish for a in model.answers([Ask(TALK, (0,))], SHORT)] == ["stop"]
    assert [seen.path.endswith(route) for seen in server.posts()] == [True]


def test_a_provider_that_lists_no_models_is_asked_under_the_given_name(serve: Serve) -> None:
    unlisted = Scripted(speaks="chat", refuse=lambda s: (404, "") if s.method == "GET" else None)
    server = serve(unlisted)
    (answer,) = answered(server, protocol="chat", model="some-model")
    assert (answer.finish, server.posts()[0].body["model"]) == ("stop", "some-model")


def test_system_and_user_arrive_as_they_are_and_no_tools_are_offered(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, owner="other"))
    (answer,) = answered(server, Sampling(0.5, 0.9, max_new_tokens=99), protocol="chat")
    seed = seed_of(SHORT, 0)
    assert answer.text == written("hello\r\n\tworld", seed, 0)
    assert (answer.tokens, answer.prompt_tokens) == (len(answer.text), len("hello\r\n\tworld"))
    (seen,) = server.posts()
    assert seen.body == {
        "model": GENERAL[0],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello\r\n\tworld"},
        ],
        "seed": seed,
        "stream": True,
        "max_completion_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("owner", ["vllm", "sglang", "llamacpp", "library"])
def test_local_servers_get_the_limit_by_its_old_name(serve: Serve, owner: str) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, owner=owner))
    answered(server, protocol="chat")
    assert server.posts()[0].body["max_tokens"] == 64
    assert "max_completion_tokens" not in server.posts()[0].body


def test_a_reader_sees_the_answer_piece_by_piece(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL))
    pieces = list(opened(server.url).stream(TALK, SHORT))
    assert len(pieces) == len("".join(pieces)) > 10
    assert "".join(pieces) == written("hello\r\n\tworld", seed_of(SHORT, 0), 0)


def test_a_sample_asked_for_alone_repeats(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL))
    model = opened(server.url, protocol="chat")
    first = {a.index: a.text for a in model.answers([Ask(TALK, (0, 1, 2))], SHORT)}
    again = {a.index: a.text for a in model.answers([Ask(TALK, (2, 1))], SHORT)}
    assert {i: first[i] for i in (1, 2)} == again


@pytest.mark.parametrize(
    "said",
    [
        {"reasoning_content": "let me think", "content": "the answer"},
        {"reasoning": "let me think", "content": "the answer"},
        {"content": "<think>\nlet me think\n</think>\n\nthe answer"},
        {"content": "let me think\n</think>\n\nthe answer"},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "let me think"}]},
                {"type": "text", "text": "the answer"},
            ]
        },
    ],
)
def test_reasoning_is_kept_apart(serve: Serve, said: dict[str, Any]) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, says=lambda body: dict(said)))
    (answer,) = answered(server)
    assert (answer.text, answer.reasoning, answer.note) == ("the answer", "let me think", "")


@pytest.mark.parametrize(
    "said", [{"content": {"a": 1}}, {"content": 3}, {"reasoning": ["a"], "content": "b"}]
)
def test_content_of_another_type_is_a_fault_of_the_server(serve: Serve, said: dict[str, Any]) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, says=lambda body: dict(said)))
    (answer,) = answered(server, clock=FakeClock())
    assert (answer.finish, answer.text) == ("failed", "")
    assert "sent JSON that does not follow its protocol" in answer.note


def test_what_looks_like_the_end_of_thoughts_inside_an_answer_stays() -> None:
    assert split_reasoning("see <think> and </think>") == ("", "see <think> and </think>")
    assert split_reasoning("<think>no end") == ("no end", "")
    assert split_reasoning("plain") == ("", "plain")


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ({"tool_calls": [{"function": {"name": "run"}}], "finish_reason": "tool_calls"}, "called a tool"),
        ({"content": None, "function_call": {"name": "run"}}, "called a tool"),
        ({"content": "", "refusal": "I cannot do that"}, "refuses to answer"),
        ({"content": "", "finish_reason": "content_filter"}, "content filter"),
        ({"reasoning_content": "hm " * 20, "finish_reason": "length"}, ""),
        ({"content": ""}, ""),
        ({"content": None}, ""),
    ],
)
def test_an_answer_without_text_is_an_answer_and_says_why(serve: Serve, said: Any, note: str) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, says=lambda body: dict(said)))
    (answer,) = answered(server)
    assert answer.text == ""
    assert answer.finish in ("stop", "length"), "it came, so it is not asked for again"
    assert note in answer.note
    assert len(server.posts()) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_parameters_that_a_server_does_not_take_are_left_out_and_people_are_told(
    serve: Serve, count: int
) -> None:
    refuses = ("max_completion_tokens", "temperature", "top_p", "seed")
    server = serve(Scripted(speaks="chat", models=GENERAL, owner="other", refuses=refuses))
    lines: list[str] = []
    model = opened(server.url, protocol="chat", progress=lines.append)
    answers = list(model.answers([Ask(TALK, tuple(range(count)))], SHORT))
    assert {a.finish for a in answers} == {"stop"}
    assert len(answers) == count
    told = [f"The endpoint {server.url} does not take `{name}`: its own value applies." for name in refuses]
    assert lines == told
    body = server.posts()[-1].body
    assert body["max_tokens"] == 64
    assert not set(refuses) & body.keys()
    requests = len(server.posts())
    assert "".join(model.stream(TALK, SHORT))
    assert len(server.posts()) == requests + 1, "it is remembered"


def test_a_stream_is_begun_again_without_what_a_server_does_not_take(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, refuses=("temperature",)))
    assert "".join(opened(server.url).stream(TALK, SHORT))


def test_without_a_temperature_greedy_answers_cannot_be_had(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, refuses=("temperature",)))
    (answer,) = answered(server, Sampling(0, 1.0))
    assert answer.finish == "failed"
    assert "'temperature' is not supported" in answer.note


def test_a_field_that_is_refused_as_fastapi_does_is_named(serve: Serve) -> None:
    def refuse(seen: Seen) -> tuple[int, object] | None:
        if seen.method == "POST" and "seed" in seen.body:
            extra = {
                "type": "extra_forbidden",
                "loc": ["body", "seed"],
                "msg": "Extra inputs are not permitted",
            }
            return 422, {"detail": [extra]}
        return None

    (answer,) = answered(serve(Scripted(speaks="chat", models=GENERAL, refuse=refuse)))
    assert answer.finish == "stop"


def test_a_model_without_a_chat_template_is_one_sentence(serve: Serve) -> None:
    refusal = 400, {"error": {"message": "no default chat template is allowed"}}

    def refuse(seen):
        return refusal if seen.path.endswith("chat/completions") else None

    server = serve(Scripted(speaks="both", models=GENERAL, refuse=refuse))
    with pytest.raises(GenerateError, match=r"without a chat template .*: set `protocol` to completions"):
        answered(server)


def test_an_answer_costs_what_the_server_states(serve: Serve) -> None:
    class Priced(Scripted):
        def handle(self, to: Any, seen: Seen) -> None:
            if seen.path == "/v1/models":
                pricing = {"prompt": "0.001", "completion": "0.01"}
                return send(to, 200, {"data": [{"id": "a/b", "pricing": pricing}]})
            usage = {"completion_tokens": 5, "prompt_tokens": 10} | self.stated
            choice = {"index": 0, "message": {"content": "text"}, "finish_reason": "stop"}
            return send(to, 200, {"choices": [choice], "usage": usage})

    server = serve(Priced())
    for stated, costs in (({}, [0.06]), ({"cost": 0.5}, [0.5])):
        server.stated = stated
        found = answered(server, protocol="chat", model="a/b")
        assert [a.cost for a in found] == pytest.approx(costs)


class Router(Server):
    """Hugging Face's router, as far as it is used."""

    def handle(self, to: Any, seen: Seen) -> None:
        if seen.headers.get("authorization") != f"Bearer {SECRET}":
            return send(to, 401, "who?")
        choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}
        return send(to, 200, {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 20}})


@pytest.mark.parametrize("model", ["Qwen/Coder", "Qwen/Coder:novita"])
def test_inference_providers_chat_through_the_router(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    router = serve(Router())
    monkeypatch.setattr("huggingface_hub.constants.INFERENCE_PROXY_TEMPLATE", router.url + "/{provider}")
    (answer,) = opened(f"hf-model:{model}", token=SECRET).answers([Ask(TALK, (0,))], SHORT)
    assert (answer.text, answer.tokens, answer.cost) == ("hi", 20, None)
    assert [seen.body["model"] for seen in router.posts("/v1/chat/completions")] == [model]


def test_ten_megabytes_of_answer_arrive_and_more_than_that_ends(serve: Serve) -> None:
    server = serve(Scripted(speaks="chat", models=GENERAL, says=lambda body: {"content": ["x"]}))
    whole = {"index": 0, "message": {"content": "x" * 10_000_000}, "finish_reason": "stop"}
    server.refuse = lambda seen: (200, {"choices": [whole]}) if seen.method == "POST" else None
    (answer,) = answered(server, protocol="chat")
    assert len(answer.text) == 10_000_000
    whole["message"] = {"content": "x" * 20_000_000}
    (answer,) = answered(server, protocol="chat")
    assert "sent more than 16,777,216 bytes" in answer.note
