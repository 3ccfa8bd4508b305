"""What a worker may reach, and how everything else is taken from it."""
