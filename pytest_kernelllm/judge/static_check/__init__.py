"""Refuses kernel modules by reading them, before anything of them runs."""
