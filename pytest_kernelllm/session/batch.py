"""A generator at work on many targets, in a thread, so that the first ones are judged while the others are written."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from kernelllm_judge.core.records import Completion, Target
from pytest_kernelllm.generate.protocol import Generator

Progress = Callable[[str], None]


class Batch:
    """One run of a generator over many targets. It starts at once."""

    def __init__(
        self,
        generator: Generator,
        targets: dict[str, Target],
        write: Callable[[Generator, Sequence[Target]], Iterator[tuple[Target, Completion]]],
        missing: int,
        progress: Progress,
    ) -> None:
        """Starts the thread."""
        self.generator = generator
        self.targets = targets
        self.error: BaseException | None = None
        self._write = write
        self._missing = missing
        self._progress = progress
        self._written: set[tuple[str, int]] = set()
        self._changed = threading.Condition()
        self._stopping = self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"kernelllm-{generator.name}", daemon=True)
        self._thread.start()

    def wait_for(self, target: Target, index: int) -> None:
        """Returns once this completion of a target is there, or no more will come."""
        awaited = target.id, index
        with self._changed:
            self._changed.wait_for(lambda: awaited in self._written or self._ended)
        if self.error is not None and awaited not in self._written:
            raise self.error

    def join(self, seconds: float | None = None) -> None:
        """Waits for the end, at most so long."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Asks for the end: at once, or after the next completion."""
        self._stopping = True
        self.generator.stop()

    def _run(self) -> None:
        started, tokens = time.monotonic(), 0
        try:
            for target, completion in self._write(self.generator, list(self.targets.values())):
                tokens += completion.tokens
                with self._changed:
                    self._written.add((target.id, completion.index))
                    self._changed.notify_all()
                if self._stopping:
                    return
                self._report(time.monotonic() - started, tokens)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they would keep a model in memory
            self.error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _report(self, seconds: float, tokens: int) -> None:
        done = len(self._written)
        left = seconds / done * max(self._missing - done, 0)
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens else ""
        self._progress(
            f"{self.generator.name}: {done} of {self._missing} completions{speed}, {left:.0f} s left"
        )
