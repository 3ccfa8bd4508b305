"""The untrusted side: the fork server, and the process in which a candidate runs."""
