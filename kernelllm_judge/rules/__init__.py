"""The rules by which candidates are judged, one module per rule.

``rules.catalog.RULES`` lists them in order.
"""
