"""Updates of buffers are written as the methods that they are."""

from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.render.in_place import in_place

CASES = [Case("default", None, Domain({}, {"norm.steps": TensorSpec("int64", ()), "norm.eps": 1e-5}), {})]


def test_updates_of_buffers_are_calls():
    before = "def forward(self, x):\n    norm = self.norm; norm.steps += 1; é = 2\n    self.norm.steps *= (\n        2\n    )  # twice\n"
    after = "def forward(self, x):\n    norm = self.norm; norm.steps.add_(1); é = 2\n    self.norm.steps.mul_(2)  # twice\n"
    assert in_place(before, CASES) == after


def test_what_may_be_a_number_stays_as_it_is():
    text = (
        "def forward(self, x):\n    self.norm.eps += 1\n    self.calls += 1\n    steps = 0\n    steps += 1\n"
    )
    assert in_place(text, CASES) == text
