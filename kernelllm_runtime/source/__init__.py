"""Reads a project's source without running it: markers, names, and the hash of what a class depends on."""
