"""``rank`` on a GPU: operations are timed, and what is measured agrees with what is known."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm import rank
from pytest_kernelllm.beside.ranking.errors import RankError


def llama():
    config = LlamaConfig(
        vocab_size=1000, hidden_size=2048, intermediate_size=5632, num_attention_heads=16, num_hidden_layers=4
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    return model, {"input_ids": torch.randint(1000, (4, 1024)), "logits_to_keep": 1}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def markable(found):
    """The classes for which a kernel could be written, in their order."""
    return [row.cls.rpartition(".")[2] for row in found.modules if not row.reason]


def test_measured_operations_add_up_to_the_gpus_part_of_a_step():
    found = rank(llama)
    assert found.measured and found.gpu == torch.cuda.get_device_name()
    assert found.step_ms is not None
    assert 0.5 * found.ms < found.step_ms  # events add a little to each operation
    assert sum(row.own_ms for row in found.modules) == pytest.approx(found.ms)
    rows = {row.cls.rpartition(".")[2]: row for row in found.modules}
    assert markable(found)[0] == "LlamaRMSNorm"
    assert rows["LlamaMLP"].share > 0.2
    linear = max((row for row in found.modules if row.cls.endswith("Linear")), key=lambda row: row.ms)
    assert linear.own_headroom_ms < 0.1 * linear.ms


def test_predictions_and_measurements_rank_alike():
    measured, counted = rank(llama), rank(llama, count=True)
    assert not counted.measured and measured.operations == pytest.approx(counted.operations, rel=0.1)
    assert markable(measured)[0] == markable(counted)[0]
    # A data sheet's peak is not reached, and no operation is much faster than memory allows.
    assert measured.ms > 0.5 * counted.ms


def test_a_model_on_the_gpu_is_ranked_where_it_is_and_stays_there():
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh()).cuda()
    x = torch.randn(1024, 256, device="cuda")
    found = rank(model, lambda: model(x))
    assert found.measured and {p.device.type for p in model.parameters()} == {"cuda"}
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_too_large_a_model_is_one_sentence():
    def huge():
        return nn.Linear(1 << 20, 1 << 20), torch.randn(1, 1 << 20)

    with pytest.raises(RankError, match="more memory than the GPU has; add --count"):
        rank(huge)
