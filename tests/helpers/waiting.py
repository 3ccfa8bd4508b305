"""Waits for what another process does."""

import time

import pytest


def wait_until(condition, process=None, seconds=240.0):
    """Looks a hundred times a second whether a condition holds; spinning would take the core from who works on it.

    Args:
        condition: called without arguments; what is awaited.
        process: fails the test at once if this one ends first.
        seconds: fails the test after so long, and kills the process: it must not take the cores from other tests.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, f"it ended with status {process.returncode}"
        if time.monotonic() > end:
            if process is not None:
                process.kill()
            pytest.fail(f"not within {seconds} s")
        time.sleep(0.01)
