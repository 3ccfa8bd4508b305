"""Every entry with a proof, adopted through the real runtime: no wrong result is dispatched where a verdict is an acceptance."""

import pytest
from corpus.dispatch import dispatch
from corpus.entries import load


@pytest.mark.parametrize("entry", [e for e in load() if e.proof and e.runs_on("cpu")], ids=lambda e: e.name)
def test_a_proof_holds(entry):
    found = dispatch(entry, "cpu")
    assert found.right, found.differs or found.explained
