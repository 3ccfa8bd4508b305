"""pass@k below the table of a pytest run."""

from dataclasses import replace

from made import outcome

from kernelllm_judge.core.records import ADOPTED, CandidateId
from pytest_kernelllm.beside.passk.summary import pytest_kernelllm_summary


def four(name, correct, **changes):
    """Four outcomes of a target, the first ``correct`` of them right."""
    return [outcome(i, "accepted" if i < correct else "run", name=name, **changes) for i in range(4)]


def test_one_line_for_a_generator_that_draws_samples():
    outcomes = [*four("A", 1), *four("B", 2), outcome(ADOPTED, "accepted", name="B")]
    assert pytest_kernelllm_summary(outcomes, ["local"], 4) == ["pass@1 0.38  pass@4 1.00 over 2 targets"]


def test_a_second_line_where_completions_were_translated():
    outcomes = [*four("A", 1, translated=True), *four("B", 2)]
    assert pytest_kernelllm_summary(outcomes, ["local"], 4) == [
        "pass@1 0.38  pass@4 1.00 over 2 targets",
        "4 of 8 completions were translated; without: pass@1 0.25  pass@4 0.50",
    ]


def test_inductors_variants_are_no_samples():
    outcomes = [*four("A", 4, generator="inductor"), *four("A", 1)]
    assert pytest_kernelllm_summary(outcomes[:4], ["inductor"], 4) == []
    assert pytest_kernelllm_summary(outcomes, ["inductor", "local"], 4) == [
        "local: pass@1 0.25  pass@4 1.00 over 1 target"
    ]


def test_nothing_is_said_for_one_sample_or_a_part_of_them():
    assert pytest_kernelllm_summary(four("A", 1)[:1], ["local"], 1) == []
    assert pytest_kernelllm_summary(four("A", 1)[:3], ["local"], 4) == []


def test_a_model_that_says_nothing_has_failed_and_a_file_that_is_not_there_has_not():
    outcomes = [*four("A", 1)[:2], outcome(2, "generate", name="A"), outcome(3, "generate", name="A")]
    assert pytest_kernelllm_summary(outcomes, ["local"], 4) == ["pass@1 0.25  pass@4 1.00 over 1 target"]
    outcomes = [replace(o, id=CandidateId("files", o.id.sample)) for o in outcomes]
    assert pytest_kernelllm_summary(outcomes, ["files"], 4) == ["pass@1 0.50  pass@2 1.00 over 1 target"]


def test_a_target_for_which_a_model_wrote_nothing_counts_and_one_without_files_does_not():
    outcomes = [*four("A", 1), *(outcome(i, "generate", name="B") for i in range(4))]
    assert pytest_kernelllm_summary(outcomes, ["local"], 4) == ["pass@1 0.12  pass@4 0.50 over 2 targets"]
    outcomes = [replace(o, id=CandidateId("files", o.id.sample)) for o in outcomes]
    assert pytest_kernelllm_summary(outcomes, ["files"], 4) == [
        "pass@1 0.25  pass@4 1.00 over 1 of 2 targets"
    ]
