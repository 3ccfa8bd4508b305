"""Decides whether a candidate may replace a target, running it in isolated worker processes."""
