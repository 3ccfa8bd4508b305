"""Finds targets in source files; the scan itself is part of the runtime, which asks whether a kernel is stale."""

from kernelllm_runtime.source.scan import Problem, Scan, python_files, scan, scan_file

__all__ = ["Problem", "Scan", "python_files", "scan", "scan_file"]
