"""Triton functions that ``tl`` lacks, whose text is part of kernel modules."""
