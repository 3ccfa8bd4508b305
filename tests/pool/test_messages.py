"""Callables of a conftest, in another process."""

import subprocess
import sys
import threading

import pytest

from pytest_kernelllm.pool.messages import CannotPack, packed, unpacked


def helper(n):
    return [n] * 2


def test_functions_reach_a_process_that_cannot_import_their_module():
    factor = 3
    text = packed({"lambda": lambda n=2: helper(n * factor), "named": helper})
    code = (
        "import sys\nfrom pytest_kernelllm.pool.messages import unpacked\n"
        "made = unpacked(sys.stdin.read())\nprint(made['lambda'](), made['named'](1))\n"
        "assert 'test_messages' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[6, 6] [1, 1]\n"


def test_nothing_stays_nothing():
    assert packed(None) == "" and unpacked("") is None


def test_what_lives_in_this_process_only_cannot_be_sent():
    lock = threading.Lock()
    with pytest.raises(CannotPack, match="TypeError: cannot pickle"):
        packed(lambda: lock)
