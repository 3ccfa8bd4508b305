"""Suggestions on GitHub: turns an untrusted artifact into one pull request for a person to review."""
