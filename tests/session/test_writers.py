"""Which processes write: those that judge, or others on the CPU cores that judging leaves."""

import os

import pytest
from projects import LAYERS

from kernelllm_judge.core.records import CandidateId
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import open_session

NOTING = """
import os
from pathlib import Path

with Path(__file__).with_name("loaded.txt").open("a") as file:
    file.write(f"{os.getpid()}\\n")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core judges, and no other is left")
@pytest.mark.parametrize("names", ["A", "AB"])
def test_others_write_where_more_targets_are_expected_than_are_judged_side_by_side(tmp_path, names) -> None:
    path = tmp_path / "layers.py"
    path.write_text(NOTING + LAYERS.replace("class Scale", "class A"))
    if len(names) > 1:
        path.write_text(path.read_text() + LAYERS.replace("class Scale", "class B"))
    settings = Settings(generator="inductor", device="cpu", samples=1, workers=1)
    with open_session(tmp_path, settings) as session:
        targets = scan_file(path, tmp_path).targets
        for target in targets:
            session.expect(target, CandidateId("inductor", 0))
        for target in targets:
            outcome = session.outcome(target, CandidateId("inductor", 0))
            assert outcome.verdict is not None and outcome.verdict.accepted, outcome.reason
    loaded = (tmp_path / "loaded.txt").read_text().split()
    assert (len(set(loaded)) > 1) is (names == "AB"), "one judges, and another one writes"
