"""Errors that a person can put right: each is one sentence that says what, where, and what to do."""


class ConfigError(ValueError):
    """A setting has a wrong name or value, or asks for what this machine cannot give."""


class SessionError(RuntimeError):
    """Something a person has to put right before a target can be judged; one sentence."""
