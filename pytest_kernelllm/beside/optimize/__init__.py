"""``pytest_kernelllm.optimize_model``: runs the store's verified kernels in a model in memory."""
