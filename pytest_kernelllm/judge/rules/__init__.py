"""The rules that a candidate is judged by, one module each. ``rules.catalog.RULES`` lists them in order."""
