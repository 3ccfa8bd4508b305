"""Checks a kernel module's source before any of it runs."""
