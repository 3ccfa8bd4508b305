"""Prepares probes and computes reference outputs. Used in the judge's own process only."""
