"""What generators write for a session's targets: from the store, or written now, for many targets at once where that is cheaper."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.records import Completion, Target
from pytest_kernelllm.generate.protocol import Generator, Request
from pytest_kernelllm.models.generator import KernelLLMGenerator
from pytest_kernelllm.store.local import Store

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget

Live = Callable[[Target], "LiveTarget"]
Progress = Callable[[str], None]

PATIENCE_S = 10.0
"""Seconds that ``close`` waits for a generator to end its work: one that is loading a model cannot be told to stop."""


class Writing:
    """Completions by target, generator and index. Nothing that the store holds is written again."""

    def __init__(self, store: Store, samples: int, live: Live, progress: Progress) -> None:
        """Nothing is written yet.

        Args:
            store: where completions are kept.
            samples: wanted of each generator for each target.
            live: imports a target.
            progress: told in a few words what is being done.
        """
        self._store = store
        self._samples = samples
        self._live = live
        self._progress = progress
        self._announced: dict[str, Target] = {}
        self._batches: dict[str, Batch] = {}
        # Of this session: failed ones are kept nowhere else, and the others may find no disk that takes them.
        self._here: dict[tuple[str, str, int], Completion] = {}

    def announce(self, target: Target) -> None:
        """This target's completions will be asked for: who batches over targets takes it along."""
        self._announced[target.id] = target

    def completions(self, generator: Generator, target: Target, count: int) -> dict[int, Completion]:
        """The first ``count`` completions by index, fewer if there are no more; waits until they are written.

        Raises:
            GenerateError: this generator cannot work.
            SessionError: the target cannot be imported, built or called.
        """
        identity = generator.identity()
        if missing := self._missing(identity, target, count):
            self._live(target)
            if generator.batched:
                self._batch(generator, target).wait_for(target, missing)
            else:
                for _ in self._write(generator, [target]):
                    pass
        found = {index: self._known(identity, target, index) for index in range(count)}
        return {index: completion for index, completion in found.items() if completion is not None}

    def stream(self, generator: Generator, target: Target) -> Iterator[str]:
        """The first completion piece by piece while it is written, then kept; nothing where there is nothing to watch.

        Raises:
            GenerateError: this generator cannot work.
            SessionError: the target cannot be imported, built or called.
        """
        identity = generator.identity()
        if not isinstance(generator, KernelLLMGenerator) or not self._missing(identity, target, 1):
            return
        with self._store.lock(f"generate {identity} "):
            if self._missing(identity, target, 1):
                for part in generator.stream(Request(target, (0,), partial(self._live, target))):
                    if isinstance(part, Completion):
                        self._keep(identity, target, part)
                    else:
                        yield part

    def settle(self) -> None:
        """Wait until nothing is written on this machine's GPUs any more, and take their memory back."""
        for batch in self._batches.values():
            if batch.generator.on_gpu:
                batch.join()
                batch.generator.release()

    def close(self) -> None:
        """End what is still being written; what is there is kept."""
        for batch in self._batches.values():
            batch.stop()
        for batch in self._batches.values():
            batch.join(PATIENCE_S)

    # ------------------------------------------------------------------ writing

    def _batch(self, generator: Generator, target: Target) -> Batch:
        """The running batch that writes for a target; a new one where there is none."""
        batch = self._batches.get(generator.name)
        if batch is None or (target.id not in batch.targets and batch.error is None):
            if batch is not None:
                batch.join()
            targets = {target.id: target, **self._announced}
            identity = generator.identity()
            wanted = sum(len(self._missing(identity, each, self._samples)) for each in targets.values())
            batch = Batch(generator, targets, self._write, wanted, self._progress)
            self._batches[generator.name] = batch
        return batch

    def _write(self, generator: Generator, targets: Sequence[Target]) -> Iterator[tuple[Target, Completion]]:
        """Have what is missing written, keep it, and pass it on. Of several processes one writes, the others wait."""
        identity = generator.identity()
        names = sorted(target.source_hash for target in targets) if not generator.batched else []
        with self._store.lock(f"generate {identity} {' '.join(names)}"):
            requests = []
            for target in targets:
                missing = self._missing(identity, target, self._samples)
                if missing and (not generator.batched or self._usable(target)):
                    requests.append(Request(target, missing, partial(self._live, target)))
            if not requests:
                return
            self._progress(f"{_names(requests)}: {generator.name} is writing candidates")
            written: Counter[str] = Counter()
            for request, completion in generator.generate(requests):
                target = request.target
                written[target.id] += 1
                self._keep(identity, target, completion)
                yield target, completion
            for request in requests:
                if written[request.target.id] < len(request.indices):
                    self._store.mark_exhausted(request.target.source_hash, identity)

    def _keep(self, identity: str, target: Target, completion: Completion) -> None:
        self._here[identity, target.id, completion.index] = completion
        if not completion.failed:
            self._store.add_completion(target.source_hash, identity, completion)

    def _usable(self, target: Target) -> bool:
        """Whether a target that others are waiting for can be imported; its own test will say why not."""
        try:
            self._live(target)
        except SessionError:
            return False
        return True

    def _missing(self, identity: str, target: Target, count: int) -> tuple[int, ...]:
        if self._store.exhausted(target.source_hash, identity):
            return ()
        return tuple(i for i in range(count) if self._known(identity, target, i) is None)

    def _known(self, identity: str, target: Target, index: int) -> Completion | None:
        return self._here.get((identity, target.id, index)) or self._store.completion(
            target.source_hash, identity, index
        )


class Batch:
    """A generator at work on many targets, in a thread of its own, so that the first ones are judged meanwhile."""

    def __init__(
        self,
        generator: Generator,
        targets: dict[str, Target],
        write: Callable[[Generator, Sequence[Target]], Iterator[tuple[Target, Completion]]],
        wanted: int,
        progress: Progress,
    ) -> None:
        """Start at once.

        Args:
            generator: at work.
            targets: what it writes for, by id.
            write: yields what is written, as soon as it is kept.
            wanted: completions that are missing, for the progress.
            progress: told in a few words what is being done.
        """
        self.generator = generator
        self.targets = targets
        self.error: BaseException | None = None
        self._write = write
        self._wanted = wanted
        self._progress = progress
        self._written: set[tuple[str, int]] = set()
        self._news = threading.Condition()
        self._stopping = self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"kernelllm-{generator.name}", daemon=True)
        self._thread.start()

    def wait_for(self, target: Target, indices: Sequence[int]) -> None:
        """Return once these completions of a target are there, or no more will come.

        Raises:
            GenerateError: what ended the work early, as said by the generator; or whatever else did.
        """
        wanted = {(target.id, index) for index in indices}
        with self._news:
            self._news.wait_for(lambda: wanted <= self._written or self._ended)
        if self.error is not None and not wanted <= self._written:
            raise self.error

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end, at most so long."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Ask for the end: at once, or after the next completion."""
        self._stopping = True
        self.generator.stop()

    def _run(self) -> None:
        started, tokens = time.monotonic(), 0
        try:
            for target, completion in self._write(self.generator, list(self.targets.values())):
                tokens += completion.tokens
                with self._news:
                    self._written.add((target.id, completion.index))
                    self._news.notify_all()
                if self._stopping:
                    return
                self._tell(time.monotonic() - started, tokens)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they would keep a model in memory
            self.error = error
        finally:
            with self._news:
                self._ended = True
                self._news.notify_all()

    def _tell(self, seconds: float, tokens: int) -> None:
        done = len(self._written)
        left = seconds / done * max(self._wanted - done, 0)
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens else ""
        self._progress(
            f"{self.generator.name}: {done} of {self._wanted} completions{speed}, {left:.0f} s left"
        )


def _names(requests: Sequence[Request]) -> str:
    first = requests[0].target.name
    return first if len(requests) == 1 else f"{first} and {len(requests) - 1} more"
