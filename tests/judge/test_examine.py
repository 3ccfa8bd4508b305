"""How the parts of a verdict share a GPU with those who time on it."""

import contextlib
import random
from types import SimpleNamespace

import torch

from kernelllm_judge import examine
from kernelllm_judge.beside import Beside
from kernelllm_judge.findings import Findings
from kernelllm_judge.run.call import Judging
from kernelllm_judge.truth.probes import Probe


class Checks:
    """A rule that notes when it is applied."""

    def __init__(self, noted):
        self.noted = noted

    def check_run(self, run):
        self.noted.append("checks")

    def check_case(self, case):
        self.noted.append("further calls")


def test_the_gpu_is_let_go_after_each_part_of_a_verdict(monkeypatch):
    noted = []

    class Timer:
        @contextlib.contextmanager
        def sharing(self):
            noted.append("held")
            yield
            noted.append("let go")

    def prepare(probe):
        noted.append("reference outputs")
        return SimpleNamespace(trivial=None)

    def run_probe(judging, prepared):
        noted.append("calls")
        return SimpleNamespace(where="default", prepared=prepared)

    monkeypatch.setattr(examine, "run_probe", run_probe)
    references = SimpleNamespace(prepare=prepare)
    allocator = SimpleNamespace(device=torch.device("cuda", 0))
    judging = Judging(None, allocator, references, Findings({}), random.Random(1))
    rules = [Checks(noted), Checks(noted)]
    probes = examine._Probes(judging, rules, Timer(), Beside(None, judging.findings), aligned=False)
    probes.check_case(probes.run_all([Probe("default", (), 1)]))
    parts = ["reference outputs", "calls", "checks", "checks", "further calls", "further calls"]
    assert noted == [word for part in parts for word in ("held", part, "let go")]
    assert set(judging.findings.durations.seconds) == {*parts, "waiting for the GPU"}
