"""pass@k and fast_p: how often a generator's kernels are right, and how often they are fast."""
