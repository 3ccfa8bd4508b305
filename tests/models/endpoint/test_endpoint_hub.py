"""Hugging Face's services, played by a local server; the client is the real ``huggingface_hub``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import SECRET, FakeClock, Scripted, Seen, Server, send

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import open_endpoint
from pytest_kernelllm.models.protocol import Ask, Sampling

Serve = Callable[[Any], Any]
SHORT = Sampling(max_new_tokens=64)


class HuggingFace(Server):
    """One endpoint, ``org/kernels``, that goes through ``states``: one further each time it is looked at."""

    def __init__(self, url: str, states: list[str]) -> None:
        self.endpoint_url = url
        self.states = states
        self.resumed: tuple[int, object] | None = None
        self.prices = True
        super().__init__()

    def endpoint(self, state: str) -> dict[str, Any]:
        return {
            "name": "kernels",
            "type": "protected",
            "provider": {"vendor": "aws", "region": "us-east-1"},
            "compute": {
                "accelerator": "gpu",
                "instanceType": "nvidia-l40s",
                "instanceSize": "x1",
                "scaling": {"minReplica": 0},
            },
            "model": {
                "repository": "facebook/KernelLLM",
                "revision": "c0ffee",
                "framework": "pytorch",
                "task": "text-generation",
                "image": {},
            },
            "status": {
                "state": state,
                "message": "no GPUs left",
                "createdAt": "2026-11-01T10:00:00.000Z",
                "updatedAt": "2026-11-01T10:00:00.000Z",
                **({"url": self.endpoint_url} if state in ("running", "scaledToZero") else {}),
            },
            "healthRoute": "/health",
        }

    def handle(self, to: Any, seen: Seen) -> None:
        if seen.headers.get("authorization") != f"Bearer {SECRET}":
            return send(to, 401, {"error": f"bad credentials {SECRET}"})
        if seen.path == "/api/whoami-v2":
            return send(to, 200, {"type": "user", "name": "org"})
        if seen.path == "/v2/endpoint/org/kernels":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return send(to, 200, self.endpoint(state))
        if seen.path == "/v2/endpoint/org/kernels/resume":
            return send(to, *(self.resumed or (200, self.endpoint(self.states[0]))))
        if seen.path == "/v2/provider/org" and self.prices:
            compute = {
                "id": "x",
                "accelerator": "gpu",
                "instanceType": "nvidia-l40s",
                "instanceSize": "x1",
                "architecture": "L40S",
                "numAccelerators": 1,
                "memoryGb": 60,
                "pricePerHour": 1.8,
                "status": "available",
                "quota": {"maxAccelerators": 4, "usedAccelerators": 0},
            }
            region = {
                "name": "us-east-1",
                "computes": [compute | {"instanceType": "other", "pricePerHour": 99}, compute],
            }
            return send(to, 200, {"vendors": [{"name": "aws", "regions": [region]}]})
        return send(to, 404, {"error": "Not Found"})


@pytest.fixture
def hub(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Callable[..., HuggingFace]:
    def start(*states: str) -> HuggingFace:
        played: HuggingFace = serve(HuggingFace(serve(Scripted(models=("/repository",))).url, list(states)))
        monkeypatch.setattr("huggingface_hub.constants.INFERENCE_ENDPOINTS_ENDPOINT", f"{played.url}/v2")
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", played.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(
            "huggingface_hub.constants.INFERENCE_PROXY_TEMPLATE", played.endpoint_url + "/{provider}"
        )
        return played

    return start


def used(where: str = "hf:org/kernels", **options: Any) -> tuple[list[str], FakeClock, Any]:
    lines: list[str] = []
    clock = FakeClock()
    model = open_endpoint(where, token=SECRET, environ={}, clock=clock, progress=lines.append, **options)
    answers = list(model.answers([Ask("one", (0, 1))], SHORT))
    assert {a.finish for a in answers} == {"stop"}
    return lines, clock, model


def test_a_running_endpoint_is_used_as_it_is(hub: Callable[..., HuggingFace]) -> None:
    played = hub("running")
    lines, clock, model = used()
    assert (lines, clock.slept, played.posts("resume")) == ([], [], [])
    assert (model.name, model.revision) == ("facebook/KernelLLM", "c0ffee")
    assert model.identity() == "endpoint hf:org/kernels"


def test_an_endpoint_without_a_namespace_is_looked_for_at_the_tokens_owner(
    hub: Callable[..., HuggingFace],
) -> None:
    hub("running")
    used("hf:kernels")


@pytest.mark.parametrize("state", ["paused", "scaledToZero"])
def test_a_sleeping_endpoint_is_woken_and_its_price_is_told(
    hub: Callable[..., HuggingFace], state: str
) -> None:
    played = hub(state, "pending", "initializing", "initializing", "running")
    lines, clock, _ = used()
    assert len(played.posts("resume")) == 1
    words = {"paused": "paused", "scaledToZero": "scaled to zero"}[state]
    assert lines[0] == (
        f"The endpoint hf:org/kernels is {words}: starting it."
        " From now on it bills $1.80 an hour for each instance, until it is paused or scales to zero again."
    )
    waits = ("pending: waited 0 s.", "initializing: waited 2 s.", "initializing: waited 4 s.")
    assert lines[1:] == [f"The endpoint hf:org/kernels is {wait}" for wait in waits]
    assert clock.slept == [0.5, 1.0, 2.0, 4.0]


def test_an_answer_costs_the_time_since_the_one_before(hub: Callable[..., HuggingFace]) -> None:
    hub("running")
    clock = FakeClock()
    model = open_endpoint("hf:org/kernels", token=SECRET, environ={}, clock=clock)
    answers = model.answers([Ask("one", (0, 1))], SHORT)
    costs = []
    for answer in answers:
        costs.append(answer.cost)
        clock.time += 100.0  # until the next one is taken
    assert costs == pytest.approx([0.0, 100 * 1.80 / 3600])


def test_without_a_price_no_answer_has_a_cost(hub: Callable[..., HuggingFace]) -> None:
    hub("running").prices = False
    model = open_endpoint("hf:org/kernels", token=SECRET, environ={}, clock=FakeClock())
    assert [answer.cost for answer in model.answers([Ask("one", (0, 1))], SHORT)] == [None, None]


def test_without_a_price_it_is_still_told_that_it_bills(hub: Callable[..., HuggingFace]) -> None:
    hub("paused", "running").prices = False
    lines, _, _ = used()
    assert "it bills by the hour (see https://endpoints.huggingface.co)" in lines[0]


def test_an_endpoint_at_zero_that_cannot_be_resumed_is_woken_by_asking_it(
    hub: Callable[..., HuggingFace],
) -> None:
    hub("scaledToZero").resumed = (400, {"error": "nothing to resume"})
    lines, _, _ = used()
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (["failed"], r"did not start, it is failed \(no GPUs left\)"),
        (["paused", "updateFailed"], r"did not start, it is failed to update \(no GPUs left\)"),
        (["initializing"], r"is still initializing after 6\d s; it keeps starting, and billing"),
    ],
)
def test_an_endpoint_that_does_not_come_up_is_one_error(
    hub: Callable[..., HuggingFace], states: list[str], says: str
) -> None:
    hub(*states)
    with pytest.raises(GenerateError, match=rf"The endpoint hf:org/kernels {says}"):
        used(wake_timeout=60)


def test_an_endpoint_that_is_not_there_is_one_error(hub: Callable[..., HuggingFace]) -> None:
    hub("running")
    with pytest.raises(
        GenerateError, match=r"The endpoint hf:org/other does not exist for this token \(404\)\."
    ):
        used("hf:org/other")


def test_a_token_that_hugging_face_refuses_is_one_error_that_does_not_show_it(
    hub: Callable[..., HuggingFace],
) -> None:
    hub("running")
    model = open_endpoint("hf:org/kernels", token="hf_wrong", environ={})
    with pytest.raises(GenerateError, match=r"Hugging Face refuses the token \(401\)") as raised:
        list(model.answers([Ask("one", (0,))], SHORT))
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert "hf_wrong" not in str(raised.value)


def test_a_named_endpoint_needs_the_network(
    hub: Callable[..., HuggingFace], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub("running")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(GenerateError, match="needs the network, and HF_HUB_OFFLINE is set"):
        used()


@pytest.mark.parametrize("where", ["hf-model:facebook/KernelLLM", "hf-model:facebook/KernelLLM:novita"])
def test_providers_are_chatted_with_only(hub: Callable[..., HuggingFace], where: str) -> None:
    hub("running")
    says = "has no provider that completes text with facebook/KernelLLM: deploy it as an endpoint of your own"
    with pytest.raises(GenerateError, match=says):
        used(where)


def test_the_template_beside_a_model_is_taken_from_the_cache_and_missed_without_a_word(
    hub: Callable[..., HuggingFace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub("running")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = open_endpoint("hf:org/kernels", token=SECRET, environ={}, clock=FakeClock())
    assert model.template() is None
    snapshot = tmp_path / "models--facebook--KernelLLM" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "kernelllm.py").write_text('PROMPT_TEMPLATE = """Please translate:\n{}\n"""\n')
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "c0ffee").write_text("c0ffee")
    (refs / "main").write_text("c0ffee")
    assert model.template() == "Please translate:\n{}\n", "the revision that the endpoint runs"
    assert (
        open_endpoint("https://host.test", model="facebook/KernelLLM", environ={}).template()
        == model.template()
    )
    assert open_endpoint("https://host.test", model="/data/some/model", environ={}).template() is None
