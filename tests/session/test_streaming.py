"""What is written is judged while the rest is being written."""

import pytest
from projects import GOOD, LAYERS
from waiting import wait_until

from kernelllm_judge.core.records import CandidateId, Completion
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.protocol import Generator
from pytest_kernelllm.session.session import open_session


class Slow(Generator):
    """Writes the second candidate when the first one has been judged."""

    name = "slow"

    def __init__(self, batched):
        self.batched = batched
        self.session = None

    def identity(self):
        return "slow"

    def generate(self, requests):
        for request in requests:
            for index in request.indices:
                wait_until(lambda: len(self.session.settled) == index, seconds=120)  # noqa: B023
                text = GOOD + f"# {index}\n"
                yield request, Completion(self.name, index, text, "kernel_module")


@pytest.mark.parametrize("batched", [False, True])
def test_the_first_candidate_is_judged_while_the_second_is_written(tmp_path, batched):
    (tmp_path / "layers.py").write_text(LAYERS)
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    slow = Slow(batched)
    settings = Settings(generator="inductor", device="cpu", samples=2, workers=1)
    with open_session(tmp_path, settings, generators=[slow]) as session:
        slow.session = session
        for sample in (0, 1):
            session.expect(target, CandidateId("slow", sample))
        assert [session.outcome(target, CandidateId("slow", n)).verdict.verdict for n in (0, 1)] == [
            "accepted",
            "accepted",
        ]


@pytest.mark.parametrize("known", [False, True])
def test_processes_are_started_ahead_where_the_store_has_no_verdict(tmp_path, known):
    (tmp_path / "layers.py").write_text(LAYERS)
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    settings = Settings(generator="inductor", device="cpu", samples=1, workers=2)
    with open_session(tmp_path, settings) as session:
        if known:
            session.outcome(target, CandidateId("inductor", 0))
    with open_session(tmp_path, settings) as session:
        session.warm()
        if not known:
            wait_until(lambda: session.processes._open()._working)
        assert (session.processes._engine is None) is known
