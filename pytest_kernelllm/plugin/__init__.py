"""The pytest plugin: hooks, one run, collectors and items."""
