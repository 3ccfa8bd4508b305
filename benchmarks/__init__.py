"""What is measured: ``python -m benchmarks NAME``."""
