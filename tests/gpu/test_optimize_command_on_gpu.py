"""``kernelllm optimize`` on a GPU: a small Llama in bfloat16, from nothing to a file that makes it run so."""

import json
import os
import subprocess
import sys

import pytest
from projects import COMMAND

from pytest_kernelllm.beside.whole.answer import CHOSEN, COMPILE, EAGER, Answer

FACTORY = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def made():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=2,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def prompt():
    model = made()
    tokens = torch.randint(1000, (2, 512))
    return model, lambda: model(tokens, use_cache=False)


def step():
    model = made().cuda()
    cache = StaticCache(config=model.config, max_cache_len=256)
    token, position = torch.randint(1000, (1, 1)), torch.full((1, 1), 128)
    with torch.no_grad():
        model(torch.randint(1000, (1, 128)), past_key_values=cache)

    def call():
        for layer in cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if isinstance(length, torch.Tensor):
                length.fill_(128)
        return model(token, past_key_values=cache, position_ids=position).logits

    return model, call
"""

FRESH = """
import torch

from llama import prompt
from placed import REGIONS, optimize
from kernelllm_runtime.adopted import DISPATCHER

with torch.device("cuda"):
    model, call = prompt()
with torch.no_grad():
    expected = call().logits.clone()
    optimize(model)
    for _ in range(3):
        found = call().logits.clone()
print("largest", float((found - expected).abs().max() / expected.abs().max()))
for cls in REGIONS.values():
    dispatcher = getattr(cls.forward, DISPATCHER)
    forms = [form for known in dispatcher.known.values() for each in known.forms.values() for form in each]
    assert dispatcher.off is None and any(form.kernel for form in forms), (cls, dispatcher.off)
"""


def optimized(path, name, *options):
    (path / "llama.py").write_text(FACTORY)
    given = ("optimize", f"llama.py:{name}", "--json", "answer.json", "--generator", "inductor", *options)
    done = subprocess.run([*COMMAND, *given], cwd=path, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)
    return Answer.from_json(json.loads((path / "answer.json").read_text()))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    optimized(path, "prompt", "--budget", "120s", "--write", "placed.py", "--html", "answer.html")
    return path


def test_the_answer_is_never_slower_and_as_exact(project):
    answer = Answer.from_json(json.loads((project / "answer.json").read_text()))
    names = [way.name for way in answer.ways]
    assert names[:2] == [EAGER, COMPILE] and names[-1] == CHOSEN
    assert answer.float64 and answer.seconds < 240
    assert answer.way(COMPILE).ratio.high > 0.97
    assert (
        answer.chosen.error <= 1.5 * answer.way(COMPILE).error
        or answer.chosen.error <= answer.way(EAGER).error
    )
    assert 0 < answer.limit_share <= 1.05
    assert any(choice.gain for choice in answer.choices)
    judged = [region for region in answer.regions if region.kernel_us]
    assert judged and all(region.compiled_us for region in judged)
    assert " of torch.compile [" in answer.sentence and "outputs within" in answer.sentence


def test_a_fresh_process_runs_it(project):
    (project / "fresh.py").write_text(FRESH)
    done = subprocess.run(
        [sys.executable, "fresh.py"],
        cwd=project,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 0.05


def test_a_decoding_step_runs_in_cuda_graphs(tmp_path):
    answer = optimized(tmp_path, "step", "--budget", "60s", "--no-max-autotune")
    (graphs,) = [choice for choice in answer.choices if choice.name == "CUDA graphs"]
    assert graphs.kept, graphs
    assert answer.options["triton.cudagraphs"] is True
    assert answer.way(COMPILE).ratio.low > 1.2
