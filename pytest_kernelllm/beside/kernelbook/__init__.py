"""Reads and writes data sets in KernelBook's form: pairs of a PyTorch module and a Triton module for it."""
