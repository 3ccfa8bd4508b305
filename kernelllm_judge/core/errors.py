"""Errors that a person can resolve: each is one sentence that says what, where, and what to do."""


class ConfigError(ValueError):
    """A setting has a wrong name or value, or asks for what this machine lacks."""


class SessionError(RuntimeError):
    """A person has to change something before a target can be judged; one sentence."""
