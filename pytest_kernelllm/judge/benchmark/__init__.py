"""Times implementations by clocks that a candidate cannot move."""
