"""``KernelLLM`` in Python: the same calls for a model here and for one behind a server."""

import pytest
from random_llama import save
from serving import Scripted

import pytest_kernelllm
from pytest_kernelllm import KernelLLM
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.prompt import TEMPLATE

MODULE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
ANSWER = "Here it is:\n```python\nimport triton\n\nclass ModelNew:\n    pass\n```\nDone."


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with KernelLLM(
        str(save(tmp_path_factory.mktemp("tiny") / "model", max_position_embeddings=1024)), max_new_tokens=24
    ) as llm:
        yield llm


@pytest.fixture
def server():
    server = Scripted(write=lambda prompt, seed, choice: ANSWER if MODULE in prompt else f"seed {seed}")
    yield server
    server.close()


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(local):
    first = local.generate_raw("import torch")
    assert local.generate_raw("import torch") == first
    assert local.generate_raw("import torch", seed=1) != first


def test_more_answers_begin_with_the_one(local):
    three = local.generate_raw("import torch", 3)
    assert three[0] == local.generate_raw("import torch")
    assert len(set(three)) == 3


def test_streamed_pieces_make_the_whole_answer(local):
    pieces = list(local.stream_raw("import torch"))
    assert len(pieces) > 1
    assert "".join(pieces) == local.generate_raw("import torch")


def test_a_call_may_be_sampled_in_its_own_way(local):
    greedy = {local.generate_raw("import torch", seed=seed, temperature=0.0) for seed in range(3)}
    assert len(greedy) == 1
    short = local.generate_raw("import torch", max_new_tokens=2)
    assert local.generate_raw("import torch").startswith(short)


def test_an_answer_without_code_says_so_alone_and_is_left_out_of_several(server):
    other = MODULE.replace("x + 1", "x + 2")
    with KernelLLM(endpoint=server.url) as llm:
        with pytest.raises(GenerateError, match="holds no code"):
            llm.generate_triton(other)
        assert llm.generate_triton(other, 2) == []


def test_a_prompt_that_does_not_fit_says_by_how_much(local):
    with pytest.raises(GenerateError, match=r"does not fit: the prompt has .* tokens .* more than"):
        local.generate_raw("x = 1\n" * 5000)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda llm: llm.generate_raw("x", 0), "`n` cannot be 0; it must be a whole number of at least 1."),
        (lambda llm: llm.generate_triton(MODULE, "3"), "`n` cannot be '3'; it must be a whole number"),
        (lambda llm: llm.answers("x", True), "`n` cannot be True"),
        (
            lambda llm: llm.generate_raw("x", temprature=1.0),
            "no option `temprature`; did you mean `temperature`?",
        ),
        (
            lambda llm: llm.generate_raw("x", beams=4),
            "no option `beams`; there are temperature, top_p, top_k",
        ),
        (
            lambda llm: llm.generate_raw("x", temperature="hot"),
            "`temperature` cannot be 'hot'; it must be a number",
        ),
        (lambda llm: llm.stream_raw("x", seed=1.5), "`seed` cannot be 1.5; it must be a whole number"),
        (lambda llm: llm.generate_raw(7), "`prompt` must be text, not of type int"),
        (lambda llm: llm.generate_triton(dict), "`code` must be text, not of type type"),
        (lambda llm: KernelLLM(max_new_token=1), "did you mean `max_new_tokens`?"),
    ],
)
def test_wrong_arguments_get_one_sentence(server, call, sentence):
    with KernelLLM(endpoint=server.url) as llm, pytest.raises(GenerateError) as error:
        call(llm)
    assert sentence in str(error.value)
    assert str(error.value).count("\n") == 0


def test_code_comes_back_without_prose_and_fences(server):
    with KernelLLM(endpoint=server.url) as llm:
        assert llm.generate_triton(MODULE).strip() == "import triton\n\nclass ModelNew:\n    pass"
        assert len(llm.generate_triton(MODULE, 3)) == 3
        assert "".join(llm.stream_raw(llm.prompt(MODULE))) == ANSWER


def test_the_prompt_is_ours_where_the_model_brings_none(local):
    assert local.prompt(MODULE) == TEMPLATE.replace("{}", MODULE)


def test_the_package_names_nothing_that_it_does_not_have():
    assert "KernelLLM" in pytest_kernelllm.__all__
    with pytest.raises(AttributeError, match="no attribute 'KernelLM'"):
        pytest_kernelllm.KernelLM  # noqa: B018
