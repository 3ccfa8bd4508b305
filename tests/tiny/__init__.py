"""A tiny language model for tests: trained to answer the prompts of a few modules by heart, and fit for nothing else."""
