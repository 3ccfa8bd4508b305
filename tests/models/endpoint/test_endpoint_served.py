"""A real ``transformers serve``, alone and behind the proxy that breaks things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from random_llama import save
from serving import FakeClock, Proxy, transformers_serve

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.endpoint import EndpointModel, open_endpoint
from pytest_kernelllm.models.protocol import Ask, Message, Sampling

pytestmark = pytest.mark.slow

Serve = Callable[[Any], Any]
Written = tuple[str, int, int, str]
PROMPTS = ["import torch\n\n\nclass Model(nn.Module):", "def f(x):\n    return é, 'ß'\n"]
CHAT = "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n{% endfor %}[assistant]"
GREEDY = Sampling(temperature=0, top_p=1, max_new_tokens=24)
DRAWN = Sampling(max_new_tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = save(tmp_path_factory.mktemp("model") / "tiny", max_position_embeddings=1024)
    (model / "chat_template.jinja").write_text(CHAT)
    return model


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with transformers_serve(folder) as address:
        yield address


def opened(url: str, folder: Path, **options: Any) -> EndpointModel:
    options = {"protocol": "completions", "clock": FakeClock()} | options
    return open_endpoint(url, model=str(folder), environ={}, **options)


@pytest.fixture(scope="module")
def local(folder: Path) -> dict[str, Written]:
    """What the model itself writes without sampling: text, new tokens, tokens of the prompt, why it ends."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    found = {}
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        new = model.generate(**inputs, do_sample=False, max_new_tokens=24)[0, length:]
        finish = "stop" if new[-1] == tokenizer.eos_token_id else "length"
        text = tokenizer.decode(new, skip_special_tokens=True)
        # The server keeps to itself the character that the last tokens only began.
        found[prompt] = (text.rstrip("\ufffd"), len(new), length, finish)
    return found


@pytest.mark.parametrize(
    "faults", [None, ["html", "cut"], ["hang"], ["reset", (429, "", {"Retry-After": "1"})]]
)
def test_greedy_answers_are_those_of_the_model_itself(
    url: str, folder: Path, local: dict[str, Written], serve: Serve, faults: list[Any] | None
) -> None:
    options: dict[str, Any] = {}
    if faults is not None:
        from pytest_kernelllm.web.retry import RequestLimits

        url = serve(Proxy(url, faults)).url
        options = {"limits": RequestLimits(idle=5.0)}
    answers = list(opened(url, folder, **options).answers([Ask(p, (0,)) for p in PROMPTS], GREEDY))
    found = {PROMPTS[a.ask]: (a.text, a.tokens, a.prompt_tokens, a.finish) for a in answers}
    assert found == local


def test_a_reader_sees_the_same_piece_by_piece(url: str, folder: Path, local: dict[str, Written]) -> None:
    pieces = list(opened(url, folder).stream(PROMPTS[0], GREEDY))
    assert len(pieces) > 1
    assert "".join(pieces) == local[PROMPTS[0]][0]


def test_several_samples_of_one_prompt_differ(url: str, folder: Path) -> None:
    answers = list(opened(url, folder).answers([Ask(PROMPTS[0], tuple(range(5)))], DRAWN))
    assert sorted(a.index for a in answers) == list(range(5))
    assert {a.finish for a in answers} <= {"stop", "length"}
    assert len({a.text for a in answers}) == 5, "sampled, not greedy"


def test_one_at_a_time_samples_repeat_by_their_seeds(url: str, folder: Path) -> None:
    def draw(indices: tuple[int, ...]) -> dict[int, str]:
        model = opened(url, folder, concurrency=1)
        asks = [Ask(PROMPTS[0], (index,)) for index in indices]
        return {asks[a.ask].indices[0]: a.text for a in model.answers(asks, DRAWN)}

    assert draw((0, 1, 2)) == draw((2, 0, 1))


def test_the_name_may_be_left_out_and_a_wrong_one_is_one_error(url: str, local: dict[str, Written]) -> None:
    (answer,) = open_endpoint(url, environ={}).answers([Ask(PROMPTS[0], (0,))], GREEDY)
    assert answer.text == local[PROMPTS[0]][0]
    with pytest.raises(GenerateError, match="Server is pinned to"):
        list(open_endpoint(url, model="facebook/KernelLLM", environ={}).answers([Ask("x", (0,))], GREEDY))


def test_sampling_is_the_one_that_was_asked_for(url: str, folder: Path, local: dict[str, Written]) -> None:
    narrow = Sampling(temperature=1.0, top_p=1.0, top_k=1, max_new_tokens=24)
    (answer,) = opened(url, folder).answers([Ask(PROMPTS[0], (0,))], narrow)
    assert answer.text == local[PROMPTS[0]][0], "of one likeliest token there is only one to draw"


@pytest.mark.parametrize("protocol", ["chat", "auto"])
def test_a_conversation_is_put_to_the_model_by_its_own_template(
    url: str, folder: Path, serve: Serve, protocol: Any
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    talk = (Message("system", "be brief"), Message("user", PROMPTS[1]))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = f"[system]be brief\n[user]{PROMPTS[1]}\n[assistant]"
    inputs = tokenizer(asked, return_tensors="pt", add_special_tokens=False)
    new = AutoModelForCausalLM.from_pretrained(folder).generate(**inputs, do_sample=False, max_new_tokens=24)
    text = tokenizer.decode(new[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    proxy = serve(Proxy(url, ["cut", "html"]))
    model = opened(proxy.url, folder, protocol=protocol)
    assert model.takes_messages()
    (answer,) = model.answers([Ask(talk, (0,))], GREEDY)
    assert (answer.text, answer.finish) == (text.rstrip("\ufffd").lstrip(), "length")
    assert answer.prompt_tokens == inputs["input_ids"].shape[1]
    assert {seen.path for seen in proxy.posts()} == {"/v1/chat/completions"}
    drawn = list(model.answers([Ask(talk, (0, 1, 2))], DRAWN))
    assert sorted(a.index for a in drawn) == [0, 1, 2]
    assert len({a.text for a in drawn}) == 3
