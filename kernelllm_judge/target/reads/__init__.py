"""What the code of a module's ``forward`` reads."""
