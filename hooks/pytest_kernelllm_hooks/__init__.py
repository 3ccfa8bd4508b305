"""Entry points of the pre-commit hooks; apart from the plugin, so that nothing but reading is ever imported."""
