"""``LocalModel``: from a name to answers, on the CPU."""

import shutil
import subprocess
import sys

import pytest
import torch
from random_llama import BEGIN, END, make_tokenizer, save
from transformers import LlamaForCausalLM

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.protocol import Ask, Sampling

SHORT = Sampling(max_new_tokens=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny", seed=1)


@pytest.fixture(scope="module")
def local(folder):
    return LocalModel(str(folder), device_map="cpu")


def texts(model, asks, sampling=SHORT):
    answers = list(model.answers(asks, sampling))
    assert len({(a.ask, a.index) for a in answers}) == len(answers)
    return {(a.ask, a.index): a.text for a in answers}


# ---------------------------------------------------------------------- answers


def test_greedy_answers_are_what_transformers_writes_without_the_prompt(local, folder):
    prompts = ["def add(a, b):", "x", "größer – 速い\n" * 3]
    greedy = Sampling(temperature=0, max_new_tokens=30)
    got = texts(local, [Ask(prompt, (0,)) for prompt in prompts], greedy)
    tokenizer, model = make_tokenizer(), LlamaForCausalLM.from_pretrained(folder)
    for number, prompt in enumerate(prompts):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False, pad_token_id=1
        )
        new = out[0, ids.shape[1] :]
        assert got[number, 0] == tokenizer.decode(
            new, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def test_a_sample_is_the_same_alone_among_others_and_asked_for_later(local):
    together = texts(local, [Ask("one", tuple(range(12))), Ask("two", (0, 1))])
    assert len(set(together.values())) == 14
    assert texts(local, [Ask("one", (7,))])[0, 7] == together[0, 7]
    assert texts(local, [Ask("two", (1,)), Ask("one", (10, 11))]) == {
        (0, 1): together[1, 1],
        (1, 10): together[0, 10],
        (1, 11): together[0, 11],
    }


def test_another_seed_writes_something_else(local):
    asks = [Ask("one", (0,))]
    assert texts(local, asks) != texts(local, asks, Sampling(max_new_tokens=30, seed=1))


def test_answers_say_what_they_cost_and_why_they_end(local):
    answers = list(local.answers([Ask("one", tuple(range(20)))], Sampling(max_new_tokens=100)))
    assert {a.finish for a in answers} == {"stop", "length"}
    for answer in answers:
        assert answer.prompt_tokens == 4  # three bytes and the begin
        assert 0 < answer.tokens <= 100 and answer.seconds > 0
        assert BEGIN not in answer.text and END not in answer.text


def test_nothing_asked_is_nothing_answered(local):
    assert list(local.answers([], SHORT)) == list(local.answers([Ask("one", ())], SHORT)) == []


def test_an_empty_prompt_is_refused_where_nothing_begins_a_text(tmp_path):
    model = LocalModel(str(save(tmp_path, adds_begin=False)), device_map="cpu")
    with pytest.raises(GenerateError, match=r"^The prompt is empty\.$"):
        next(model.answers([Ask("", (0,))], SHORT))


# ---------------------------------------------------------------------- streaming


@pytest.mark.parametrize("index", range(8))
def test_the_pieces_of_a_stream_are_the_answer(local, index):
    long = Sampling(max_new_tokens=150)
    pieces = list(local.stream("stream", long, index))
    (answer,) = local.answers([Ask("stream", (index,))], long)
    assert "".join(pieces) == answer.text
    assert all(pieces) and len(pieces) > 1


def test_a_character_of_several_bytes_arrives_whole(folder, tmp_path):
    """A model that knows nothing but one line: every byte leads to the next one."""
    line = "– 速い größer ✓ 🙂 end"
    tokenizer = make_tokenizer()
    model = shutil.copytree(folder, tmp_path / "parrot")
    teach(model, tokenizer("Say: " + line + END)["input_ids"])
    local = LocalModel(str(model), device_map="cpu")
    greedy = Sampling(temperature=0, max_new_tokens=80)
    pieces = list(local.stream("Say: ", greedy))
    assert "".join(pieces) == line
    assert not any("\ufffd" in piece for piece in pieces)
    assert any("🙂" in piece for piece in pieces)


def teach(folder, ids):
    """Train on one text until greedy decoding repeats it."""
    torch.manual_seed(0)
    model = LlamaForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = torch.tensor([ids])
    for _ in range(400):
        output = model(input_ids=batch, labels=batch)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (output.logits[0, 4:-1].argmax(-1) == batch[0, 5:]).all():
            break
    model.save_pretrained(folder)


# ---------------------------------------------------------------------- the begin of a text


def begins(model, prompt):
    return [i for i, token in enumerate(model._encode(prompt)) if token == 0]


def test_a_text_begins_once(local, tmp_path):
    plain = LocalModel(str(save(tmp_path, adds_begin=False)), device_map="cpu")
    assert begins(local, "text") == [0]
    assert begins(plain, "text") == []
    for model in (local, plain):
        assert begins(model, BEGIN + "text") == [0]
        assert begins(model, BEGIN * 3 + "text") == [0]
    assert begins(local, "text" + BEGIN) == [0, 5]


# ---------------------------------------------------------------------- what is known of it


def test_a_prompt_that_leaves_no_room_is_said_by_how_much(local, folder):
    assert local.too_long("x" * 481, SHORT) is None  # 482 tokens of 512
    assert local.too_long("x" * 500, SHORT) == (
        "the prompt has 501 tokens and the answer may have 30, 19 more than the 512 that tiny reads"
    )


def test_a_folder_is_called_by_its_name_and_told_apart_by_its_contents(folder, tmp_path, monkeypatch):
    first = LocalModel(str(folder))
    assert first.name == "tiny"
    assert first.identity() == f"local tiny@{first.revision} auto none"
    other = LocalModel(str(save(tmp_path / "tiny", seed=2)))
    assert other.identity() != first.identity()
    assert LocalModel(str(folder), dtype="bfloat16").identity() != first.identity()
    monkeypatch.chdir(folder)
    assert LocalModel(".").name == "tiny"


def test_a_pinned_commit_is_known_without_the_model():
    script = """
import sys
from pytest_kernelllm.models.local.model import LocalModel
assert LocalModel("owner/none", "a" * 40).identity() == f"local owner/none@{'a' * 40} auto none"
assert not {"torch", "transformers", "huggingface_hub"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_folders_identity_is_known_without_torch(folder):
    script = f"""
import sys
from pytest_kernelllm.models.local.model import LocalModel
LocalModel({str(folder)!r}).identity()
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_models_own_template_is_used_where_it_has_one(local, folder, tmp_path):
    assert local.template() is None
    mine = shutil.copytree(folder, tmp_path / "mine")
    (mine / "kernelllm.py").write_text("PROMPT_TEMPLATE = 'Write Triton for:\\n{}\\nNow:'\n")
    assert LocalModel(str(mine)).template() == "Write Triton for:\n{}\nNow:"


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_what_is_not_installed_is_one_sentence(folder, name):
    script = f"""
import sys
sys.modules[{name!r}] = None
from pytest_kernelllm.models.local.model import LocalModel
from pytest_kernelllm.models.protocol import Ask, Sampling
from pytest_kernelllm.generate.protocol import GenerateError
for ask in (lambda m: m.too_long("x", Sampling()), lambda m: next(m.answers([Ask("x", (0,))], Sampling()))):
    try:
        ask(LocalModel({str(folder)!r}))
    except GenerateError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    sentence = f"A local model needs {name}, which is not installed: pip install 'pytest-kernelllm[local]'.\n"
    assert done.stdout == sentence * 2, done.stderr


# ---------------------------------------------------------------------- letting go


def test_a_model_that_was_released_is_loaded_again(folder):
    told = []
    model = LocalModel(str(folder), device_map="cpu", progress=told.append)
    first = texts(model, [Ask("one", (0,))])
    model.release()
    model.release()
    assert texts(model, [Ask("one", (0,))]) == first
    assert told == ["loading tiny", "loading tiny"]


def test_memory_is_given_back_also_after_a_stream_that_was_not_read_to_its_end(folder):
    import weakref

    model = LocalModel(str(folder), device_map="cpu")
    stream = model.stream("one", SHORT)
    next(stream)
    weights = weakref.ref(next(model._loaded.model.parameters()))
    stream.close()
    model.release()
    assert weights() is None
