"""The engine that judges on the nodes of a Ray cluster."""
