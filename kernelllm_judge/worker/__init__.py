"""The untrusted side: the fork server, and the worker process in which a candidate runs."""
