"""The subcommands of ``kernelllm``, one module each. Each has ``add`` (its arguments) and ``run`` (its exit code)."""
