"""Every candidate of the corpus before the judge on a GPU, timing included, with the static check and without it."""

import pytest
from corpus.entries import load
from corpus.selected import assert_right, judge_selected

every_entry = pytest.mark.parametrize("entry", load(), ids=lambda entry: entry.name)


@pytest.fixture(scope="module")
def judged(request):
    return judge_selected(request, "cuda", jobs=4)


@pytest.mark.timeout(1800)  # the first one waits until all are judged
@every_entry
def test_without_the_static_check_behaviour_decides(entry, judged):
    assert_right(judged, entry, static_check=False)


@pytest.mark.timeout(1800)
@every_entry
def test_with_the_static_check(entry, judged):
    assert_right(judged, entry, static_check=True)
