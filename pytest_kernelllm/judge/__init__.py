"""The judge: a library of its own that decides about candidates and runs them in isolated workers."""
