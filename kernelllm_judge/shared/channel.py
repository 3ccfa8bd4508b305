"""Sends and receives length-prefixed JSON over a socket: all that judge and worker exchange besides buffers.

Standard library only. Nothing that arrives is ever unpickled or evaluated.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

COMPILING = "compiling"
"""The key of a worker's message, before its reply, that a compilation begins (true), or has ended and it waits to go on."""

MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes; a longer message is a protocol error."""

NO_MESSAGE = "something that is no message"


class ChannelClosed(Exception):
    """The other end is closed."""


class ChannelTimeout(Exception):
    """No complete message arrived before the deadline."""


class ChannelError(Exception):
    """The other end sent something that is no message; the text says what is wrong with it, after "it wrote"."""


class Channel:
    """One end of a stream socket that carries JSON objects."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes over ``sock``."""
        self.sock = sock

    def send(self, message: dict[str, Any], timeout: float | None = None) -> None:
        """Sends one object; the other end has to take it within ``timeout`` seconds.

        Raises:
            ChannelTimeout: it did not.
            ChannelClosed: the other end is closed.
        """
        body = json.dumps(message).encode()
        try:
            self.sock.settimeout(timeout)
            self.sock.sendall(struct.pack("<I", len(body)) + body)
        except TimeoutError as error:
            raise ChannelTimeout from error
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits at most ``timeout`` seconds for one complete object.

        Raises:
            ChannelTimeout: no complete message arrived in time.
            ChannelClosed: the other end is closed.
            ChannelError: the message is not a JSON object.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        (length,) = struct.unpack("<I", self._exactly(4, deadline))
        if length > MAX_MESSAGE:
            raise ChannelError(NO_MESSAGE)  # its length is none, but the first letters of a text
        try:
            message = json.loads(self._exactly(length, deadline))
        except (ValueError, RecursionError) as error:
            raise ChannelError(f"{NO_MESSAGE}: it is not JSON, or nested too deeply") from error
        if not isinstance(message, dict):
            raise ChannelError(f"{NO_MESSAGE}: it is not a JSON object")
        return message

    def waits(self, seconds: float = 0) -> bool:
        """Whether something arrives in so many seconds, or the other end is closed."""
        return bool(select.select([self.sock], [], [], seconds)[0])

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                if deadline is None:
                    self.sock.settimeout(None)
                else:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise ChannelTimeout
                    self.sock.settimeout(left)
                chunk = self.sock.recv(count - len(parts))
            except TimeoutError as error:
                raise ChannelTimeout from error
            except OSError as error:
                raise ChannelClosed from error
            if not chunk:
                raise ChannelClosed
            parts += chunk
        return bytes(parts)

    def close(self) -> None:
        """Closes this end."""
        self.sock.close()
