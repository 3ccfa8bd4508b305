"""What the store has verified, run by the modules of a model in memory: ``pytest_kernelllm.optimize_model``."""
