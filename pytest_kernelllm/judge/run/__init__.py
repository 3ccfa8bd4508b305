"""Uploads probes to a worker, has them run there, and compares what was written."""
