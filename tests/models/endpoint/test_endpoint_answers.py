from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import huggingface_hub.constants
import pytest
from serving import FakeClock, Proxy, Scripted, Seen, written

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import EndpointModel, open_endpoint
from pytest_kernelllm.models.endpoint.wire import seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, LanguageModel, Sampling

Serve = Callable[[Any], Any]
SHORT = Sampling(max_new_tokens=64)


def opened(url: str, **options: Any) -> EndpointModel:
    return open_endpoint(url, **({"clock": FakeClock(), "environ": {}} | options))


def by_index(answers: list[Answer]) -> dict[tuple[int, int], str]:
    return {(a.ask, a.index): a.text for a in answers}


def test_an_endpoint_is_a_language_model_and_opening_it_sends_nothing(serve: Serve) -> None:
    server = serve(Scripted())
    model: LanguageModel = opened(server.url)
    assert model.identity() == f"endpoint {server.url}"
    assert opened(server.url, model="a/b").identity() == f"endpoint {server.url} a/b"
    assert server.seen == []
    model.release()


@pytest.mark.parametrize("speaks", ["openai", "tgi"])
@pytest.mark.parametrize("stream", [False, True])
def test_texts_come_through_unchanged(serve: Serve, speaks: str, stream: bool) -> None:
    server = serve(Scripted(speaks=speaks))
    model = opened(server.url)
    expected = written("hello\r\n\tworld", seed_of(SHORT, 3), 0)
    if stream:
        pieces = list(model.stream("hello\r\n\tworld", SHORT, index=3))
        assert "".join(pieces) == expected
        assert len(pieces) == len(expected)
    else:
        (answer,) = model.answers([Ask("hello\r\n\tworld", (3,))], SHORT)
        assert (answer.ask, answer.index, answer.text, answer.finish) == (0, 3, expected, "stop")
        assert answer.tokens == len(expected)
        assert answer.prompt_tokens == len("hello\r\n\tworld")
    assert model.name == "facebook/KernelLLM"


def test_each_sample_is_one_request_with_a_seed_of_its_own(serve: Serve) -> None:
    server = serve(Scripted(owner="somebody"))
    asks = [Ask("one", tuple(range(20))), Ask("two", (7, 9))]
    answers = list(opened(server.url, protocol="completions").answers(asks, SHORT))
    assert sorted(by_index(answers)) == [(0, i) for i in range(20)] + [(1, 7), (1, 9)]
    assert len(set(by_index(answers).values())) == 22
    assert len({seen.body["seed"] for seen in server.posts("completions")}) == 20
    assert all(a.tokens == len(a.text) for a in answers)


def test_a_sample_asked_for_alone_repeats_and_more_samples_repeat_nothing(serve: Serve) -> None:
    server = serve(Scripted(speaks="tgi"))
    model = opened(server.url)
    first = by_index(list(model.answers([Ask("one", (0, 1, 2))], SHORT)))
    again = by_index(list(opened(server.url).answers([Ask("one", (2, 1, 0))], SHORT)))
    more = by_index(list(model.answers([Ask("one", (3, 4))], SHORT)))
    other = by_index(list(model.answers([Ask("one", (0, 1, 2))], replace(SHORT, seed=1))))
    assert first == again
    assert len({*first.values(), *more.values(), *other.values()}) == 8


@pytest.mark.parametrize("speaks", ["openai", "tgi"])
def test_without_sampling_one_request_is_enough(serve: Serve, speaks: str) -> None:
    server = serve(Scripted(speaks=speaks))
    answers = list(
        opened(server.url).answers([Ask("one", (0, 1, 2))], replace(SHORT, temperature=0, top_p=1))
    )
    assert sorted(a.index for a in answers) == [0, 1, 2]
    assert len({a.text for a in answers}) == len(server.posts()) == 1
    assert [a.tokens > 0 for a in answers] == [True, False, False], "what was not written is not counted"


@pytest.mark.parametrize("top_p", [0.9, 1.0])
def test_tgi_is_not_sent_what_it_refuses(serve: Serve, top_p: float) -> None:
    server = serve(Scripted(speaks="tgi"))
    (answer,) = opened(server.url).answers([Ask("one", (0,))], Sampling(top_p=top_p))
    assert answer.finish == "stop"
    (seen,) = server.posts()
    assert seen.body.get("top_p") == (None if top_p == 1.0 else top_p)


@pytest.mark.parametrize(
    ("owner", "sent"),
    [("vllm", {"top_k": -1, "min_p": 0.0}), ("llamacpp", {"top_k": 0, "min_p": 0.0}), ("somebody", {})],
)
def test_openai_servers_are_told_to_leave_their_own_defaults_out(
    serve: Serve, owner: str, sent: dict[str, Any]
) -> None:
    server = serve(Scripted(owner=owner))
    list(opened(server.url, protocol="completions").answers([Ask("one", (0,))], Sampling(top_p=1.0)))
    (seen,) = server.posts()
    assert {k: seen.body[k] for k in ("temperature", "top_p", "max_tokens")} == {
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 2048,
    }
    assert {k: v for k, v in seen.body.items() if k in ("top_k", "min_p")} == sent


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("", "/"),
        ("", "/v1"),
        ("", "/v1/completions"),
        ("/a/b", "/a/b"),
        ("/a/b", "/a/b/v1/"),
        ("/api/v3", "/api/v3/v1/models"),
    ],
)
def test_addresses_are_taken_as_people_copy_them(serve: Serve, prefix: str, suffix: str) -> None:
    server = serve(Scripted(prefix=prefix))
    (answer,) = opened(server.url + suffix).answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


@pytest.mark.parametrize("suffix", ["/generate", "/generate_stream", "/x/generate"])
def test_addresses_of_tgi_are_taken_as_people_copy_them(serve: Serve, suffix: str) -> None:
    server = serve(Scripted(speaks="tgi", prefix="/x" if suffix.startswith("/x") else ""))
    (answer,) = opened(server.url + suffix).answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


def test_completions_that_are_not_below_v1_are_found(serve: Serve) -> None:
    class Odd(Scripted):
        def handle(self, to: Any, seen: Seen) -> None:
            good = seen.path in ("/openai/models", "/openai/completions")
            super().handle(to, replace(seen, path=seen.path.replace("/openai", "/v1") if good else "/none"))

    server = serve(Odd())
    (answer,) = opened(server.url + "/openai").answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


def test_no_more_requests_than_allowed_are_under_way(serve: Serve) -> None:
    lock, now, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def write(prompt: str, seed: int | None, choice: int) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(20)  # three at a time, or the test ends here
        with lock:
            now -= 1
        return "x"

    server = serve(Scripted(speaks="tgi", write=write))
    answers = list(opened(server.url, concurrency=3).answers([Ask("one", tuple(range(9)))], SHORT))
    assert {a.finish for a in answers} == {"stop"}
    assert most == 3


def test_answers_arrive_while_others_are_still_being_written(serve: Serve) -> None:
    go_on = threading.Event()

    def write(prompt: str, seed: int | None, choice: int) -> str:
        if prompt == "slow":
            assert go_on.wait(20)
        return prompt

    server = serve(Scripted(speaks="tgi", write=write))
    answers = opened(server.url).answers([Ask("slow", (0,)), Ask("fast", (0,))], SHORT)
    assert next(answers).text == "fast"
    go_on.set()
    assert [a.text for a in answers] == ["slow"]


@pytest.mark.parametrize("stream", [False, True])
def test_closing_the_iterator_ends_the_work_at_once(serve: Serve, stream: bool) -> None:
    # All but the first request hang until the server is closed, long after this test is over.
    server = serve(Proxy(serve(Scripted(speaks="tgi")).url, faults=["pass"]))
    server.always = "hang"
    model = opened(server.url, concurrency=2)
    iterator = model.stream("one", SHORT) if stream else model.answers([Ask("one", tuple(range(8)))], SHORT)
    next(iter(iterator))
    iterator.close()
    assert not [t for t in threading.enumerate() if t.name == "kernelllm-endpoint"]
    assert len(server.posts()) <= 3


def test_no_samples_are_no_requests(serve: Serve) -> None:
    server = serve(Scripted())
    assert list(opened(server.url).answers([Ask("one", ())], SHORT)) == []
    assert server.posts() == []


def test_a_server_with_several_models_wants_one_named(serve: Serve) -> None:
    server = serve(Scripted(models=("a/one", "b/two"), owner="somebody"))
    with pytest.raises(GenerateError, match="serves a/one, b/two: name one"):
        list(opened(server.url).answers([Ask("one", (0,))], SHORT))
    with pytest.raises(GenerateError, match="serves a/one, b/two, but not c/three: name one"):
        list(opened(server.url, model="c/three").answers([Ask("one", (0,))], SHORT))
    (answer,) = opened(server.url, model="b/two").answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


@pytest.mark.parametrize(
    ("served", "name", "told"),
    [
        ("facebook/KernelLLM", "facebook/KernelLLM", False),
        ("me/tuned", "me/tuned", True),
        ("/repository", "facebook/KernelLLM", False),
    ],
)
def test_a_server_with_one_model_is_asked_for_that_one(
    serve: Serve, served: str, name: str, told: bool
) -> None:
    lines: list[str] = []
    server = serve(Scripted(models=(served,), owner="somebody"))
    model = opened(server.url, model="facebook/KernelLLM", progress=lines.append)
    (answer,) = model.answers([Ask("one", (0,))], SHORT)
    assert (answer.finish, model.name) == ("stop", name)
    say = f"The endpoint {server.url} reports that it serves me/tuned, not facebook/KernelLLM."
    assert lines == ([say] if told else [])


def test_the_revision_is_known_where_the_server_says_it(serve: Serve) -> None:
    model = opened(serve(Scripted(speaks="tgi")).url)
    before = model.identity()
    list(model.answers([Ask("one", (0,))], SHORT))
    assert model.revision == "abc123"
    assert model.identity() == before, "what is cached under it must not change"


def test_a_server_that_does_not_stream_is_understood(serve: Serve) -> None:
    whole = {
        "choices": [{"index": 0, "text": "all of it", "finish_reason": "length"}],
        "usage": {"completion_tokens": 3},
    }
    server = serve(Scripted(refuse=lambda seen: (200, whole) if seen.path.endswith("completions") else None))
    (answer,) = opened(server.url).answers([Ask("one", (0,))], SHORT)
    assert (answer.text, answer.finish, answer.tokens) == ("all of it", "length", 3)
    assert list(opened(server.url).stream("one", SHORT)) == ["all of it"]


def test_localhost_works_offline(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    server = serve(Scripted(speaks="tgi"))
    (answer,) = opened(server.url.replace("127.0.0.1", "localhost")).answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


def test_a_proxy_for_the_world_is_none_for_this_machine(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    (answer,) = opened(serve(Scripted()).url).answers([Ask("one", (0,))], SHORT)
    assert answer.finish == "stop"


def test_samples_are_json_that_servers_take(serve: Serve) -> None:
    server = serve(Scripted())
    prompt = "lone \ud800 surrogate, \x00 and \u2028"
    (answer,) = opened(server.url).answers([Ask(prompt, (0,))], SHORT)
    assert answer.finish == "stop"
    assert json.dumps(server.posts()[0].body)
