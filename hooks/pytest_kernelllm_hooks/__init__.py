"""Entry points of the pre-commit hooks: ``check`` only reads; ``verify`` starts pytest, which judges and writes the store."""
