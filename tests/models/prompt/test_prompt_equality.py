"""The module in a prompt computes what its original computes: bit for bit, in an interpreter of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from standalone_modules import compare, targets

from kernelllm_judge.target.live import load_target
from pytest_kernelllm.models.prompt import PromptError, standalone

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"

MARKED = [
    *targets(HERE, HERE / "library_targets.py"),
    *targets(EXAMPLES / "llm_blocks"),
    *targets(EXAMPLES / "transformers_layers"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return compare(tmp_path_factory.mktemp("modules"), MARKED)


def test_enough_classes_of_others_are_compared():
    assert sum(target.path == "library_targets.py" for _, target in MARKED) >= 25
    assert sum(target.path != "library_targets.py" for _, target in MARKED) >= 20


@pytest.mark.parametrize("target", [target.id for _, target in MARKED])
def test_the_module_computes_the_same_in_a_fresh_interpreter(
    wrong: dict[str, list[str]], target: str
) -> None:
    assert wrong[target] == []


def test_the_page_about_prompts_shows_what_is_sent() -> None:
    page = (HERE.parents[2] / "docs" / "explanation" / "prompt.md").read_text()
    root = EXAMPLES / "llm_blocks"
    (target,) = (target for _, target in targets(root) if target.name == "RotaryEmbedding")
    live = load_target(root, target)
    text = standalone(live, live.case("default-bfloat16"))
    assert f"```python\n{text}```" in page


def test_a_configuration_whose_method_is_called_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scaled_rotary.py").write_text(
        "import torch\n"
        "from transformers import LlamaConfig\n"
        "from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding\n"
        "from pytest_kernelllm import triton_candidate\n"
        "rope = {'rope_type': 'linear', 'factor': 2.0, 'rope_theta': 10000.0}\n"
        "def init(): return (LlamaConfig(hidden_size=32, num_attention_heads=4, rope_parameters=rope),)\n"
        "def inputs(): return torch.randn(2, 6, 8), torch.randint(64, (2, 6))\n"
        "triton_candidate(LlamaRotaryEmbedding, inputs=inputs, init=init)\n"
    )
    ((root, target),) = targets(tmp_path)
    live = load_target(root, target)
    with pytest.raises(
        PromptError, match=r"its constructor's `config` .* the method .*standardize_rope_params"
    ):
        standalone(live, live.cases[0])


def test_a_whole_language_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "whole_llama.py").write_text(
        "import torch\n"
        "from transformers import LlamaConfig\n"
        "from transformers.models.llama.modeling_llama import LlamaForCausalLM\n"
        "from pytest_kernelllm import triton_candidate\n"
        "def init(): return (LlamaConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4,\n"
        "    num_key_value_heads=4, num_hidden_layers=1, vocab_size=50),)\n"
        "def inputs(): return {'input_ids': torch.randint(50, (2, 6))}\n"
        "triton_candidate(LlamaForCausalLM, inputs=inputs, init=init)\n"
    )
    ((root, target),) = targets(tmp_path)
    live = load_target(root, target)
    with pytest.raises(PromptError, match=r"LlamaForCausalLM cannot be written as one module: [^\n]*\.$"):
        standalone(live, live.cases[0])
