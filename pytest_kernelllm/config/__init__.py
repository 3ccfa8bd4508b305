"""Settings: command line, environment and ``[tool.kernelllm]``, merged into one frozen ``Settings``."""
