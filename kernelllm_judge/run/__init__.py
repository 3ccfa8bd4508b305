"""Runs probes in a worker and compares the outputs."""
