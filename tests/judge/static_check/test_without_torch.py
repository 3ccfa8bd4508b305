"""The job that suggests has no torch; what it reads there must give what the judge found where it verified."""

import dataclasses
import json
import subprocess
import sys

import pytest
from corpus.entries import load
from without_torch import run_without_torch

from kernelllm_judge.static_check.allowed import INSIDE_MODULES, INSIDE_TORCH, MEMBERS, OTHER_MEMBERS
from kernelllm_judge.static_check.static_check import find_violations

CHECK = """
import dataclasses, json
from kernelllm_judge.static_check.static_check import find_violations

sources = json.load(sys.stdin)
print(json.dumps([[dataclasses.asdict(found) for found in find_violations(source)] for source in sources]))
assert not {"torch", "triton", "numpy"} & sys.modules.keys()
"""

TOUCHES = "import torch\n\n\ndef forward(self, x):\n    return {}\n"
ATTRIBUTES = [
    "self.norm.running_mean",
    "self.layers[0].weight",
    "self.norm._modules",
    "self.norm.register_buffer('x', x)",
    "x.tolist()",
    "x.hook.of_a_subclass",
    "self.weight.untyped_storage()",
    "torch.empty_like(x).numpy()",
]


def test_every_source_gives_the_same_findings_without_torch():
    sources = [entry.text for entry in load() if entry.kind != "fenced"]
    sources += [TOUCHES.format(expression) for expression in ATTRIBUTES]
    done = run_without_torch(CHECK, stdin=json.dumps(sources))
    assert done.returncode == 0, done.stderr
    found = [[dataclasses.asdict(finding) for finding in find_violations(source)] for source in sources]
    assert json.loads(done.stdout) == found
    assert any(found) and not all(found)


@pytest.mark.parametrize("name", ["running_mean", "weight"])
def test_an_attribute_of_a_submodule_may_be_read(name):
    assert find_violations(TOUCHES.format(f"self.norm.{name}")) == []


LISTED = """
from torch import Tensor, nn
print(*{name for cls in (Tensor, nn.Linear, nn.Conv2d, nn.Parameter) for name in dir(cls)})
"""


def test_the_list_names_all_that_the_installed_torch_has():
    """Red with a newer torch: add the names that it brings, so that the job without torch knows them as well."""
    # In an interpreter of its own, because libraries that other tests import add methods to tensors.
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    names = {name for name in names if not name.startswith("__")}
    assert names <= INSIDE_TORCH | INSIDE_MODULES | OTHER_MEMBERS | MEMBERS
    assert not INSIDE_TORCH & (MEMBERS | OTHER_MEMBERS)
