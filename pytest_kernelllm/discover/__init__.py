"""Finds targets: first in source files, without importing them, then as live classes."""
