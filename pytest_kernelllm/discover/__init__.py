"""Finds targets: statically in source files, then live."""
