"""Waits for what another process does."""

import time


def wait_until(condition, process=None, seconds=240.0):
    """Looks a hundred times a second whether a condition holds; spinning would take the core from who works on it.

    Args:
        condition: called without arguments; what is awaited.
        process: fails the test at once if this one ends first.
        seconds: fails the test after so long.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, f"it ended with status {process.returncode}"
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)
