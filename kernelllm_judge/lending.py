"""Leases GPU memory for the candidates of one target, by what its calls take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from kernelllm_judge.leases import EVERYTHING, Lease, Leases
from kernelllm_judge.memory import CallBytes
from kernelllm_judge.truth.outputs import ReferenceOutputs


class Lending:
    """What a target's calls take, and leases for that."""

    def __init__(self, leases: Leases | None, references: ReferenceOutputs) -> None:
        """``leases`` is None where nothing is leased, as without a GPU."""
        self._leases = leases
        self._references = references
        self._call = None if leases is None else self._find_call()

    def _find_call(self) -> CallBytes | None:
        """Returns the bytes of a call of the original; None where it cannot be built."""
        try:
            return self._references.call
        except (Exception, SystemExit):  # which the first probe reports
            return None

    @contextlib.contextmanager
    def lease(self, *, alone: bool, only_timed: bool = False) -> Iterator[Lease]:
        """Waits for a lease and holds it, see ``Leases.hold``. What takes much memory of the GPU is dropped at its end."""
        if self._leases is None:
            yield EVERYTHING
            return
        call = self._known_call()
        on_host = call is not None and self._references.on_host
        with self._leases.hold(call, alone=alone, on_host=on_host, only_timed=only_timed) as lease:
            try:
                yield lease
            finally:
                if call is not None:
                    self._references.forget()

    def _known_call(self) -> CallBytes | None:
        """Returns what a call takes: until calls were cut, rows of inputs in the host's memory may depend on each other."""
        if self._call is None or not self._references.on_host or self._references.cuts:
            return self._call
        return replace(self._call, rows=False)

    def take_less(self) -> bool:
        """Keeps large inputs in the host's memory; returns whether that is new, and is enough.

        A run without data tells neither what an operation allocates itself nor whether rows depend on each other.
        """
        if self._leases is None or self._call is None or self._references.on_host:
            return False
        self._call = self._references.keep_on_host()
        return self._leases.fits(self._call)

    def what_would_do(self) -> str:
        """Says how much memory would do, see ``Leases.what_would_do``; empty where that is not known."""
        call = self._known_call()
        return "" if self._leases is None or call is None else self._leases.what_would_do(call)
