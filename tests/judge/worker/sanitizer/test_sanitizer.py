"""Faults in small kernels, each named exactly, and kernels that only look like them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).with_name("kernels.py")

FAULTS = {
    "copy one too many": "line LOAD of `copy` reads element 16 of `x_ptr` (its own float32 [16]), which has 16 elements, in program (2, 0, 0)",
    "write one too many": "writes element 15 of `out_ptr` (its own float32 [15]), which has 15 elements, in program (1, 0, 0)",
    "copy a row too many": "reads element 16 of `x_ptr`",
    "discard beyond": "reads element 13 of `x_ptr`",
    "lookup of -1": "reads element -1 of `x_ptr`",
    "lookup far away": "reads element 1099511627776 of `x_ptr`",
    "lookup very far away": "reads at an address that lies in no tensor",
    "block pointer beyond": "reads element 12 of `x_ptr`",
    "descriptor beyond": "reads element 12 of `x_ptr`",
    "shift by two programs": "race for element 8 of `x_ptr` (its own float32 [16]): program (0, 0, 0) reads it in line",
    "plain sum": "race for element 0 of `out_ptr`",
    "atomic sum of garbage": "reads element 0 of `out_ptr` (its own float32 [1]), which nothing has written",
    "other values": "program (0, 0, 0) writes it in line",
    "last adds up, relaxed": "race for element 0 of `partial_ptr`",
    "last adds up, released only": "race for element 0 of `partial_ptr`",
    "last adds up, own block only": "race for element 0 of `partial_ptr`",
    "waits for too few": "race for element 1 of `partial_ptr`",
    "looks once": "race for element 1 of `partial_ptr`",
    "compares once": "race for element 1 of `partial_ptr`",
    "takes all bits once": "race for element 1 of `partial_ptr`",
    "looks twice": "race for element 1 of `partial_ptr`",
    "waits for a counter from garbage": "reads element 0 of `count_ptr` (its own int32 [1]), which nothing has written",
    "unlocked by a store": "program (1, 0, 0) updates it in line",
    "partly filled": "reads element 1 of `x_ptr` (its own float32 [4, 8]), which nothing has written",
    "scatter to one place": "stores different values to element 1 of `out_ptr`",
    "tuned sum": "of the autotuned kernel `tuned_sum` reads `out_ptr`",
    "tuned copy": "`tuned_copy` reads element 16 of `x_ptr`",
}
NONE = (
    "copy",
    "copy of a view",
    "copy across a view's end",
    "copy rows",
    "discard",
    "lookup",
    "block pointer",
    "descriptor",
    "shift by one program",
    "plain sum by one program",
    "atomic sum",
    "same value",
    "last adds up",
    "waits for all",
    "watches, then acquires",
    "released by a lane",
    "locked sum",
    "filled view",
    "scatter",
    "tuned sum from zero",
    "tuned sum restored",
)


@pytest.fixture(scope="module")
def faults():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", KERNELS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(faults, name):
    load = next(
        n
        for n, text in enumerate(KERNELS.read_text().splitlines(), 1)
        if "tl.load(x_ptr + i, mask=i < n" in text
    )
    assert FAULTS[name].replace("LOAD", str(load)) in (faults[name] or "")


@pytest.mark.parametrize("name", NONE)
def test_what_is_right_is_accepted(faults, name):
    assert faults[name] is None


def test_every_kernel_is_expected_to_have_a_fault_or_none(faults):
    assert set(faults) == {*FAULTS, *NONE}
    assert all(re.search(r"line \d+", fault) for fault in faults.values() if fault)
