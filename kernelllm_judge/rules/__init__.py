"""The rules by which candidates are judged, grouped by what they ask; ``rules.catalog.RULES`` lists them in order."""
