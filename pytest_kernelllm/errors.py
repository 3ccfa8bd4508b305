"""The error that a run ends a test with."""


class SessionError(RuntimeError):
    """Something a person has to put right before a target can be judged; one sentence."""
