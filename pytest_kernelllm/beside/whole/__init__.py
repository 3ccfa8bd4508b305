"""Optimizes a whole model: cuts its graph into regions, has kernels judged for them, and chooses how it runs by measuring it."""
