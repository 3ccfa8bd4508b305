"""Proves where a kernel's loads, stores and atomics go: inside their tensors, no two programs in one place, outputs whole."""
