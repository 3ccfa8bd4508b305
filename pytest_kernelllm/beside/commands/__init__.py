"""Commands that serve what is beside the way."""
