"""One run: from targets to outcomes, with everything that is known read from the store."""
