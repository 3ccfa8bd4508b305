"""Isolates a worker: limits the files, system calls, network and resources that it can use."""
