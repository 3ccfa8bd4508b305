"""The stored completions on a GPU: the same table, the same answers."""

import pytest
from completions import TABLE, check, completion_judge


@pytest.fixture(scope="module")
def decide():
    with completion_judge("cuda") as decide:
        yield decide


@pytest.mark.parametrize("name", TABLE)
def test_what_becomes_of_a_completion_on_a_gpu(decide, name):
    check(name, decide(name))
