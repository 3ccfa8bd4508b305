"""What a request to a server can end in, other than an answer."""

from __future__ import annotations


class Fault(Exception):
    """A request that failed. ``reason`` completes a sentence that begins with the server and contains no secret."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        retryable: bool = False,
        fatal: bool = False,
        starting: bool = False,
        unsent: bool = False,
        pause: float | None = None,
    ) -> None:
        """Describe the failure; every argument becomes an attribute."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        """The HTTP status; 0 if there was no response."""
        self.retryable = retryable
        """The request may succeed if it is repeated."""
        self.fatal = fatal
        """Every other request would fail in the same way."""
        self.starting = starting
        """The server is starting up."""
        self.unsent = unsent
        """No connection was made, so the server has not seen the request."""
        self.pause = pause
        """Seconds to wait before the next try, where the server states them."""

    def given_up(self, why: str) -> Fault:
        """The fault to raise when no further try follows, and ``why``. It has no status: the server gave no final answer."""
        return Fault(f"{self.reason} ({why})", fatal=self.fatal or self.starting)
