"""Times candidates and baselines by clocks that a candidate cannot manipulate."""
