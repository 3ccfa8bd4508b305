"""The stored completions on a GPU: the same table, the same answers."""

import pytest
from completions import TABLE, check, decide

from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Judge


@pytest.fixture(scope="module")
def judge():
    with Judge(find_environment("cuda")) as judge:
        yield judge


@pytest.mark.parametrize("name", TABLE)
def test_what_becomes_of_a_completion_on_a_gpu(judge, name):
    check(name, decide(judge, name))
