"""Checks every memory access of a kernel in Triton's interpreter: bounds, races, and memory nobody wrote."""
