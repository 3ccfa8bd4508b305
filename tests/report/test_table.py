"""The closing table names every target so that nobody confuses two."""

from pytest_kernelllm.core.outcome import CandidateId, Outcome
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.report.table import render_table


def outcome(path, name):
    return Outcome(Target(path, name, 1, "b" * 64, "call"), CandidateId("files", 0), None, None)


def test_targets_of_one_name_show_their_paths():
    outcomes = [outcome("a/model.py", "GLU"), outcome("b/model.py", "GLU"), outcome("b/model.py", "Norm")]
    lines = render_table(outcomes, {}, 110, False).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["a/model.py::GLU", "b/model.py::GLU", "Norm"]
