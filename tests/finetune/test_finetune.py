"""``examples/finetune``: TRL trains a tiny random model on a real data set, on the CPU."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from projects import ANSWER, PROBLEM
from tiny.lessons import MODEL
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

SCRIPT = Path(__file__).parents[2] / "examples" / "finetune" / "finetune.py"

SMALLER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}

RELU = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def row(number: int, **changes: str) -> dict[str, object]:
    code, answer = (text.replace("+ 1", f"+ {number}") for text in (PROBLEM, ANSWER))
    return {"entry_point": "Model", "python_code": code, "triton_code": answer} | changes


@pytest.mark.slow
def test_the_recipe_trains_and_writes_a_model(tmp_path):
    """Pairs that are twice in the data, test problems of KernelBench, and what is too long are left out."""
    rows = [*map(row, range(8)), row(0), row(9, python_code=RELU), row(10, triton_code=ANSWER * 20), {}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    torch.manual_seed(0)
    base = LlamaForCausalLM(AutoConfig.from_pretrained(MODEL, dtype="float32", **SMALLER))
    base.save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(tmp_path / "base")
    options = ("--max-length", "2048", "--max-steps", "5", "--accumulate", "1", "--learning-rate", "1e-2")
    done = subprocess.run(
        [sys.executable, SCRIPT, "pairs.jsonl", "--model", "base", "--out", "tuned", *options],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "8 pairs to train on; 3 left out" in done.stdout
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", done.stdout)]
    assert losses and losses[-1] < 0.99 * math.log(base.config.vocab_size), done.stdout
    tuned = LlamaForCausalLM.from_pretrained(tmp_path / "tuned")
    before, after = base.state_dict(), tuned.state_dict()
    assert before.keys() == after.keys(), "a whole model, without an adapter beside it"
    changed = {name for name in before if not torch.equal(before[name], after[name].float())}
    assert changed and all("proj" in name for name in changed)
