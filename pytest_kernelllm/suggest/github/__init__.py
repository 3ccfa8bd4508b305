"""Suggestions on GitHub: an artifact that nobody trusts becomes one pull request that a person reads."""
