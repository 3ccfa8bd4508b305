"""Renders what TorchInductor writes, and what models trained on its output write."""
