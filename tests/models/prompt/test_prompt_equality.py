"""The module in a prompt computes what its original computes: bit for bit, in an interpreter of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from standalone_modules import compare, targets

from kernelllm_judge.target.live import load_target
from pytest_kernelllm.models.prompt import standalone

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"

MARKED = [
    *targets(HERE, HERE / "library_targets.py"),
    *targets(EXAMPLES / "llm_blocks"),
    *targets(EXAMPLES / "transformers_layers"),
]

SIGNATURES = {"PhiMLP", "FalconMLP"}
"""Classes whose text holds signatures, so that it does not run."""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return compare(tmp_path_factory.mktemp("modules"), MARKED)


def test_enough_classes_of_others_are_compared():
    assert sum(target.path == "library_targets.py" for _, target in MARKED) >= 20
    assert sum(target.path != "library_targets.py" for _, target in MARKED) >= 20


@pytest.mark.parametrize("target", [target.id for _, target in MARKED])
def test_the_module_computes_the_same_in_a_fresh_interpreter(
    wrong: dict[str, list[str]], target: str
) -> None:
    if target.partition("::")[2] in SIGNATURES:
        assert wrong[target]
        pytest.skip("its text holds signatures")
    assert wrong[target] == []


def test_the_page_about_prompts_shows_what_is_sent() -> None:
    page = (HERE.parents[2] / "docs" / "explanation" / "prompt.md").read_text()
    root = EXAMPLES / "llm_blocks"
    (target,) = (target for _, target in targets(root) if target.name == "RotaryEmbedding")
    live = load_target(root, target)
    text = standalone(live, live.case("default-bfloat16"))
    assert f"```python\n{text}```" in page


LLAMA = """
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import {cls}
from pytest_kernelllm import triton_candidate
def init(): return (LlamaConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4,
    num_key_value_heads=4, num_hidden_layers=1, vocab_size=50),)
def inputs(): return {inputs}
triton_candidate({cls}, inputs=inputs, init=init)
"""


def test_a_whole_language_model_is_shown_with_signatures(tmp_path: Path) -> None:
    inputs = "{'input_ids': torch.randint(50, (2, 6))}"
    (tmp_path / "whole_llama.py").write_text(LLAMA.format(cls="LlamaForCausalLM", inputs=inputs))
    ((root, target),) = targets(tmp_path)
    live = load_target(root, target)
    text = standalone(live, live.cases[0])
    for part in ("class LlamaDecoderLayer(", "class LlamaRMSNorm(", "# From transformers.", "hidden_size=32"):
        assert part in text
    compile(text, "<module>", "exec")


def test_a_multilayer_perceptron_of_transformers_stays_a_program(tmp_path: Path) -> None:
    (tmp_path / "llama_mlp.py").write_text(LLAMA.format(cls="LlamaMLP", inputs="torch.randn(2, 32)"))
    ((root, target),) = targets(tmp_path)
    live = load_target(root, target)
    text = standalone(live, live.cases[0])
    assert "ACT2FN = {'silu': " in text
    assert "# From" not in text
