"""Ranks the modules of a model by what a kernel could save in each."""
