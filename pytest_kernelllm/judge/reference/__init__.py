"""Prepares what a candidate is asked and computes what is right. Used in the judge's own process only."""
