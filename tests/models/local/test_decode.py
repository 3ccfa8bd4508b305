"""Many samples at once, against transformers' own ``generate``."""

import copy
import itertools

import pytest
import torch
import transformers
from random_llama import make_model

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local import attention
from pytest_kernelllm.models.local.decode import ALIGNMENT, DecodeJob, Decoder
from pytest_kernelllm.models.local.draw import draw, uniforms
from pytest_kernelllm.models.protocol import Sampling

NEW = 24
GREEDY = Sampling(temperature=0, max_new_tokens=NEW)


@pytest.fixture(scope="module", params=[4, 2, 1], ids=["a head each", "two share", "all share"])
def model(request):
    return make_model(num_key_value_heads=request.param)


@pytest.fixture(scope="module")
def llama():
    return make_model()


def prompts(*lengths):
    generator = torch.Generator().manual_seed(5)
    return [tuple(torch.randint(2, 258, (n,), generator=generator).tolist()) for n in lengths]


def jobs_of(texts, sampling=GREEDY, samples=1):
    return [
        DecodeJob(text, uniforms(sampling.seed, str(text), i, sampling.max_new_tokens))
        for text in texts
        for i in range(samples)
    ]


def written(model, jobs, sampling=GREEDY, ends=frozenset(), stop=lambda tokens: None, rows=4, **options):
    length = max(len(job.prompt) for job in jobs) + sampling.max_new_tokens
    decoder = Decoder(model, sampling, ends, rows=rows, length=length, **options)
    last = {}
    for state in decoder.run(jobs, stop):
        assert state.job not in last or not last[state.job].finish
        last[state.job] = state
    assert sorted(last) == list(range(len(jobs))) and all(state.finish for state in last.values())
    return [last[i] for i in range(len(jobs))]


def generated(model, prompt, count=NEW):
    """What transformers writes, greedily, with its own attention and cache, and no token that ends."""
    model.set_attn_implementation("sdpa")
    try:
        return greedy(model, prompt, count)
    finally:
        model.set_attn_implementation("kernelllm_slots")


def greedy(model, prompt, count=NEW):
    """What transformers writes with the model as it stands."""
    ids = torch.tensor([prompt])
    attended = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=attended, max_new_tokens=count, do_sample=False, eos_token_id=-1)
    return tuple(out[0, len(prompt) :].tolist())


def test_greedy_text_is_what_generate_writes(model):
    texts = prompts(1, 2, 7, 30, ALIGNMENT - NEW, ALIGNMENT, 100)
    states = written(model, jobs_of(texts), rows=3)
    for text, state in zip(texts, states, strict=True):
        assert state.tokens == generated(model, text)
        assert (state.finish, state.spent) == ("length", NEW)


ARCHITECTURES = {
    "Gemma": {"head_dim": 16},
    "GPTBigCode": {},
    "GPTNeoX": {},
    "Granite": {},
    "Llama": {},
    "Mistral": {"sliding_window": None},
    "Olmo2": {},
    "Phi3": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Starcoder2": {"sliding_window": None},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models_of_other_architectures_write_what_generate_writes(name):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        **ARCHITECTURES[name],
    )
    torch.manual_seed(0)
    plain = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
    ours = transformers.AutoModelForCausalLM.from_config(config).eval()
    ours.load_state_dict(plain.state_dict())
    ours.set_attn_implementation(attention.register())
    (text,) = prompts(20)
    [state] = written(ours, jobs_of([text]))
    assert state.tokens == greedy(plain, text)


def test_rows_are_given_to_waiting_samples_as_they_get_free(llama):
    texts = prompts(9, 4, 12, 6, 5)
    expected = [generated(llama, text) for text in texts]
    lengths = [3, 19, 11, 1, 14]
    end = {text[:n]: n for text, n in zip(expected, lengths, strict=True)}

    def stop(tokens):
        return next((n for known, n in end.items() if tuple(tokens[:n]) == known), None)

    states = written(llama, jobs_of(texts), rows=2, chunk=4, stop=stop)
    assert [state.tokens for state in states] == [w[:n] for w, n in zip(expected, lengths, strict=True)]
    assert all(state.finish == "stop" for state in states)


@torch.inference_mode()
def test_each_token_is_drawn_with_its_own_number(llama):
    sampling = Sampling(max_new_tokens=NEW, temperature=0.8, top_p=0.9, top_k=50)
    jobs = jobs_of(prompts(7, 12), sampling, samples=2)
    for job, state in zip(jobs, written(llama, jobs, sampling), strict=True):
        ids = list(job.prompt)
        for number in job.numbers:
            logits = llama(input_ids=torch.tensor([ids]), use_cache=False).logits[:, -1]
            ids += draw(logits, number[None], sampling).tolist()
        assert state.tokens == tuple(ids[len(job.prompt) :])


@pytest.mark.parametrize("behind", [False, True], ids=["at once", "a chunk behind"])
@pytest.mark.parametrize("chunk", [1, 2, 16, 64])
def test_how_often_snapshots_are_taken_does_not_change_what_is_written(llama, chunk, behind):
    sampling = Sampling(max_new_tokens=NEW, seed=3)
    jobs = jobs_of(prompts(6, 20, 3), sampling, samples=4)
    expected = written(llama, jobs, sampling, frozenset(range(20)), rows=12, chunk=1)
    assert {state.finish for state in expected} == {"stop", "length"}
    for rows in (1, 5):
        states = written(llama, jobs, sampling, frozenset(range(20)), rows=rows, chunk=chunk, behind=behind)
        assert [(s.tokens, s.finish) for s in states] == [(s.tokens, s.finish) for s in expected]


def test_sampling_does_not_depend_on_how_many_rows_run_side_by_side(model):
    sampling = Sampling(max_new_tokens=NEW, temperature=0.7, top_p=0.9)
    jobs = jobs_of(prompts(11, 5), sampling, samples=5)
    alone = written(model, jobs, sampling, rows=1)
    for rows in (2, 3, 10):
        assert written(model, jobs, sampling, rows=rows) == alone
    assert len({state.tokens for state in alone}) == 10


def test_a_smaller_limit_writes_the_beginning_of_the_same_text(llama):
    long = Sampling(max_new_tokens=NEW)
    short = Sampling(max_new_tokens=9)
    texts = prompts(8)
    expected = written(llama, jobs_of(texts, long, 3), long)
    states = written(llama, jobs_of(texts, short, 3), short)
    assert [s.tokens for s in states] == [w.tokens[:9] for w in expected]


@pytest.mark.parametrize("behind", [False, True])
def test_a_text_may_end_with_its_first_token(llama, behind):
    texts = prompts(6, 7, 8)
    ends = frozenset(generated(llama, text, 1)[0] for text in texts)
    states = written(llama, jobs_of(texts), ends=ends, rows=2, chunk=4, behind=behind)
    assert [(s.tokens, s.finish) for s in states] == [((), "stop")] * 3


def test_the_token_that_ends_a_text_is_no_part_of_it(llama):
    (text,) = prompts(6)
    expected = generated(llama, text)
    end = next(t for t in expected[5:] if t not in expected[:5])
    (state,) = written(llama, jobs_of([text]), ends=frozenset([end]))
    assert state.tokens == expected[: expected.index(end)]
    assert state.spent > len(state.tokens)


@pytest.mark.parametrize("behind", [False, True])
def test_a_single_token_may_be_asked_for(llama, behind):
    sampling = Sampling(temperature=0, max_new_tokens=1)
    texts = prompts(4, 9, 2)
    states = written(llama, jobs_of(texts, sampling), sampling, rows=2, behind=behind)
    assert [s.tokens for s in states] == [generated(llama, text, 1) for text in texts]


def test_each_prompt_is_read_once_for_its_neighbours(llama):
    seen = []
    hook = llama.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        written(llama, jobs_of(prompts(9, 17), samples=6), rows=4, chunk=8)
    finally:
        hook.remove()
    assert sorted(n for n in seen if n > 1) == [9, 17]


def test_states_grow_until_the_text_is_finished(llama):
    (job,) = jobs_of(prompts(5))
    decoder = Decoder(llama, GREEDY, frozenset(), rows=1, length=5 + NEW, chunk=3)
    states = list(decoder.run([job], lambda tokens: None))
    assert [state.finish for state in states] == [""] * (len(states) - 1) + ["length"]
    for earlier, later in itertools.pairwise(states):
        assert later.tokens[: len(earlier.tokens)] == earlier.tokens


def test_memory_goes_with_the_decoder(llama):
    import gc
    import weakref

    jobs = jobs_of(prompts(5))
    decoder = Decoder(llama, GREEDY, frozenset(), rows=1, length=5 + NEW)
    list(decoder.run(jobs, lambda tokens: None))
    slots = weakref.ref(decoder._cache.layers[0].keys)
    gc.disable()
    try:
        del decoder
        assert slots() is None
    finally:
        gc.enable()


def test_a_model_whose_attention_is_of_another_kind_is_refused_and_not_run_wrongly(llama):
    attention = llama.model.layers[0].self_attn
    forward = attention.forward
    attention.forward = lambda *args, **kwargs: forward(*args, **kwargs | {"softcap": 30.0})
    try:
        with pytest.raises(GenerateError, match=r"LlamaAttention computes attention with softcap, which"):
            written(llama, jobs_of(prompts(3)))
        attention.forward = lambda *args, lengths=None, **kwargs: forward(*args, **kwargs)
        with pytest.raises(GenerateError, match="in its own way"):
            written(llama, jobs_of(prompts(3)))
    finally:
        attention.forward = forward
