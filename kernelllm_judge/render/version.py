"""The renderer's version, apart so that asking for it imports nothing."""

RENDER_VERSION = "23"
"""Renderings of another version are made anew. Raise it with every change of what is rendered."""
