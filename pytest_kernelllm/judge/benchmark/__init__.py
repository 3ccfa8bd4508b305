"""How fast a kernel is, by clocks that it cannot move."""
