"""What a run says about tokens and money."""

from kernelllm_judge.core.records import CandidateId, Target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.report.spent import spent

TARGET = Target("layers.py", "Scale", 3, "0" * 64, "decorator")


def wrote(generator, tokens, cost=None):
    return Outcome(TARGET, CandidateId(generator), tokens=tokens, cost=cost)


def test_tokens_and_money_are_added_up_by_generator() -> None:
    outcomes = [wrote("local", 900), wrote("inductor", 0), wrote("endpoint", 50, 0.25)]
    outcomes += [wrote("local", 600), wrote("endpoint", 30, 0.5), wrote("endpoint", 20)]
    assert [f"{each.generator}: {each}" for each in spent(outcomes)] == [
        "local: 2 answers, 1,500 tokens",
        "endpoint: 3 answers, 100 tokens, $0.75 when they were written",
    ]


def test_a_single_answer_of_a_fraction_of_a_cent() -> None:
    (each,) = spent([wrote("endpoint", 1, 0.0001)])
    assert str(each) == "1 answer, 1 token, less than $0.01 when they were written"


def test_nothing_is_said_where_no_model_wrote() -> None:
    assert spent([wrote("inductor", 0)]) == []
