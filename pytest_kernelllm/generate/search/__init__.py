"""Searches for faster candidates: which programs to try next, by what was measured. Imports no torch."""
