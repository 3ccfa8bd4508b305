"""Programs that run at once write and show what they do one after the other. In a process of its own: it patches Triton."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelllm_judge.worker.touched import HELD, Touched

KERNELS = Path(__file__).with_name("batched_kernels.py")

AT_ONCE = (
    *("elementwise", "elementwise in bfloat16", "rows and columns", "softmax", "reductions"),
    *("reductions of a column", "branching", "matmul", "tiles", "descriptors", "embedded", "ragged", "noise"),
    *("in place", "added up", "large"),
)
APART = {
    "added up twice": None,
    "tickets": None,
    "same everywhere": None,
    "handed on": "program (0, 0, 0) writes it in line",
    "loops of all lengths": None,
    "failing": None,
    "beyond": "writes element 1080 of `out_ptr` (its own float32 [128]), which has 128 elements, in program (5, 0, 0)",
    "nothing written": "reads element 600 of `x_ptr`",
}
"""Kernels whose programs run one after the other, with their faults."""


@pytest.fixture(scope="module")
def outcomes():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", KERNELS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [*AT_ONCE, *APART])
def test_programs_at_once_show_what_they_show_one_after_the_other(outcomes, name):
    together, apart = outcomes[name]
    assert together["seen"] == apart["seen"]
    assert not any(apart["at once"])


@pytest.mark.parametrize("name", AT_ONCE)
def test_they_run_at_once(outcomes, name):
    together, _ = outcomes[name]
    assert all(together["at once"][:2])  # a mutant may compute wrong addresses


@pytest.mark.parametrize("name", APART)
def test_they_run_one_after_the_other_where_that_may_matter(outcomes, name):
    together, _ = outcomes[name]
    assert not together["at once"][0]
    *_, fault, _, _ = together["seen"]
    assert (APART[name] or "") in (fault or "")
    assert (fault is None) is (APART[name] is None)


def test_a_kernel_that_fails_says_so(outcomes):
    together, _ = outcomes["failing"]
    assert "power of 2" in str(together["seen"])


def touched(*accesses):
    found = Touched()
    for addresses, programs, options in accesses:
        places = np.array(addresses, np.uint64)
        found.note(places, np.ones(places.shape, bool), 4, np.array(programs), **options)
    return found.by_several()


WRITES, ATOMIC = {"writes": True}, {"writes": True, "atomic": True}


@pytest.mark.parametrize(
    ("accesses", "several"),
    [
        ([([[0, 4], [8, 12]], [0, 1], WRITES)], False),
        ([([[0, 4], [4, 8]], [0, 1], WRITES)], True),
        ([([[0, 4], [2, 8]], [0, 1], WRITES)], True),
        ([([[0, 4], [4, 8]], [0, 1], {})], False),
        ([([[0], [4]], [0, 1], WRITES), ([[0], [4]], [0, 1], {})], False),
        ([([[0], [4]], [0, 1], WRITES), ([[4], [0]], [0, 1], {})], True),
        ([([[0], [8]], [0, 1], WRITES), ([[4]], [0, 1], {})], False),
        ([([[0], [8]], [0, 1], WRITES), ([[8]], [0, 1], {})], True),
        ([([[0], [0]], [0, 1], ATOMIC)], False),
        ([([[0], [0]], [0, 1], ATOMIC), ([[0], [4]], [0, 1], {})], True),
        ([([[0], [0]], [0, 1], ATOMIC), ([[0], [0]], [0, 1], ATOMIC)], True),
        ([([[0]], [0], WRITES), ([[0]], [1], {})], True),
        ([([[0]], [0], WRITES), ([[0]], [0], {})], False),
    ],
)
def test_places_that_several_programs_touch_are_found(accesses, several):
    assert touched(*accesses) is several


def test_much_that_is_read_elsewhere_makes_no_difference():
    accesses = [([[0], [4]], [0, 1], WRITES), ([range(1 << 20, (1 << 20) + 4 * HELD + 4, 4)], [0, 1], {})]
    assert not touched(*accesses)
    assert not touched(*reversed(accesses))
