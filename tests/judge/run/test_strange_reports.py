"""Whatever a worker reports, the judge decides and never fails."""

from dataclasses import replace

import pytest
from loading import load
from projects import GOOD, LAYERS

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.rules.catalog import without

PATCH = """
import sys

worker = sys.modules["kernelllm_judge.worker.worker"]
"""

COUNTED = """
import collections

worker.OperationWatch.elements = property(lambda self: collections.Counter({}), lambda self, value: None)
"""


@pytest.fixture(scope="module")
def decide(tmp_path_factory):
    path = tmp_path_factory.mktemp("strange") / "layers.py"
    path.write_text(LAYERS)
    live = load(path)
    with Judge(find_environment("cpu"), deadline=20, rules=without({"static check", "compile"})) as judge:

        def decide(patch):
            candidate = render(Completion("files", 0, GOOD, "kernel_module"), live)
            return judge.judge(replace(candidate, source=candidate.source + PATCH + patch), Criteria(live))

        yield decide


@pytest.mark.parametrize(
    "patch",
    [
        "worker.leaves.shared = lambda *a: [5]",
        "worker.leaves.shared = lambda *a: {'x': 1}",
        "worker.leaves.describe = lambda leaf: 7",
        "worker.leaves.describe = lambda leaf: {'dtype': ['a'], 'shape': {}}",
        "worker.leaves.flatten = lambda value: ([], [value])",
        "worker.leaves.flatten = lambda value: ({'a': None}, [])",
        "worker.OperationWatch.broken_guards = lambda self: [[1], {'a': 2}]",
        "worker.OperationWatch.broken_guards = lambda self: 'x'",
        COUNTED.format({"aten::mul": -5}),
        COUNTED.format({"aten::mul": "many"}),
        "worker.Channel.send = lambda self, message: self.sock.sendall(b'\\xff\\xff\\xff\\xff')",
        "worker.Channel.send = lambda self, message: self.sock.sendall(b'\\x02\\x00\\x00\\x00[]')",
    ],
)
def test_a_strange_report_is_a_rejection(decide, patch):
    verdict = decide(patch)
    assert verdict.verdict == "rejected", verdict.reason
    assert verdict.rule in ("run", "types", "aliasing", "guards"), verdict.reason


def test_without_a_patch_the_same_kernel_is_accepted(decide):
    assert decide("").accepted
