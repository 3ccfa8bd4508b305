"""Renders completions to kernel modules. Nothing that a completion says is executed."""
