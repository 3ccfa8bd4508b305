"""Pins: texts that are equal only if two values are, for all that a ``forward`` reads besides tensors and scalars."""
