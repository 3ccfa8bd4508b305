"""The first stage: has completions written, for many targets at once where that is cheaper."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Completion, Target
from pytest_kernelllm.generate.protocol import Generator, Request
from pytest_kernelllm.session.batch import Batch
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.store.completions import CompletionKey

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

LOADED_AT_ONCE = 16
"""Targets that are loaded side by side before a batch begins."""

PATIENCE_S = 10.0
"""Seconds that ``close`` waits for a generator to end its work: one that is loading a model cannot be stopped."""


class Targets(Protocol):
    """Loads targets, see ``TargetProcesses``."""

    def load(self, target: Target) -> object:
        """Checks that a target can be loaded, or raises ``SessionError``."""

    def live(self, target: Target) -> LiveTarget:
        """Returns the target's class, imported in this process."""


class CompleteStage:
    """Completions by target, generator and index. Nothing that the store holds is written again."""

    def __init__(self, context: Context, targets: Targets) -> None:
        """Writes nothing yet; ``targets`` are loaded before something is written for them."""
        self._context = context
        self._targets = targets
        self._lock = threading.Lock()
        self._alone: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By the name of a generator that one thread may use at a time."""
        self._announced: dict[str, Target] = {}
        self._batches: dict[str, Batch] = {}

    def announce(self, target: Target) -> None:
        """Announces that this target's completions will be asked for: a batch over targets takes it along."""
        self._announced[target.id] = target

    def completions(self, generator: Generator, target: Target, count: int) -> Iterator[Completion]:
        """Yields the first ``count`` completions, fewer if there are no more, each as soon as it is written."""
        identity = generator.identity()
        left = [self._key(identity, target, index) for index in range(count)]
        if missing := self._missing(identity, target, count):
            yield from self._taken(left)
            self._targets.load(target)
            for _ in self._each_written(generator, target, missing):
                yield from self._taken(left)
        yield from self._taken(left)

    def leave_gpus(self) -> None:
        """Waits until nothing is written on this machine's GPUs any more, and takes their memory back."""
        for batch in list(self._batches.values()):
            if batch.generator.on_gpu:
                batch.join()
                batch.generator.release()

    def close(self, seconds: float = PATIENCE_S) -> None:
        """Ends what is still being written, waiting at most so long; what is there is kept."""
        batches = list(self._batches.values())
        for batch in batches:
            batch.stop()
        end = time.monotonic() + seconds
        for batch in batches:
            batch.join(max(0.0, end - time.monotonic()))

    # ------------------------------------------------------------------ writing

    def _taken(self, left: list[CompletionKey]) -> Iterator[Completion]:
        """Yields what is known by now, and takes it out of what is left."""
        for key in list(left):
            if (completion := self._context.known.completions.known(key)) is not None:
                left.remove(key)
                yield completion

    def _each_written(self, generator: Generator, target: Target, missing: Sequence[int]) -> Iterator[object]:
        """Has what is missing written; yields whenever something was."""
        if generator.batched:
            with self._lock:
                batch = self._batch(generator, target)
            for index in missing:
                batch.wait_for(target, index)
                yield index
        else:
            with contextlib.nullcontext() if generator.concurrent else self._alone[generator.name]:
                yield from self._write(generator, [target])

    def _batch(self, generator: Generator, target: Target) -> Batch:
        """The running batch that writes for a target; a new one where there is none."""
        batch = self._batches.get(generator.name)
        if batch is None or (target.id not in batch.targets and batch.error is None):
            if batch is not None:
                batch.join()
            targets = {target.id: target, **self._announced}
            identity = generator.identity()
            missing = sum(
                len(self._missing(identity, each, self._context.settings.samples))
                for each in targets.values()
            )
            batch = Batch(generator, targets, self._write, missing, self._context.progress)
            self._batches[generator.name] = batch
        return batch

    def _write(self, generator: Generator, targets: Sequence[Target]) -> Iterator[tuple[Target, Completion]]:
        """Has what is missing written, keeps it, and passes it on. Of several processes one writes, the others wait."""
        identity = generator.identity()
        names = sorted(target.source_hash for target in targets) if not generator.batched else []
        with self._context.store.lock(f"generate {identity} {' '.join(names)}"):
            asked = [
                (target, self._missing(identity, target, self._context.settings.samples))
                for target in targets
            ]
            asked = [(target, missing) for target, missing in asked if missing]
            if generator.batched:
                with ThreadPoolExecutor(LOADED_AT_ONCE) as threads:
                    usable = list(threads.map(self._usable, [target for target, _ in asked]))
                asked = [each for each, can in zip(asked, usable, strict=True) if can]
            requests = [
                Request(target, missing, partial(self._targets.live, target)) for target, missing in asked
            ]
            if not requests:
                return
            self._context.progress(f"{_names(requests)}: {generator.name} is writing candidates")
            written: Counter[str] = Counter()
            for request, completion in generator.generate(requests):
                target = request.target
                # After a failure, the others of this target may still come when they are asked for again.
                written[target.id] += len(request.indices) if completion.failed else 1
                yield (
                    target,
                    self._context.known.completions.keep(
                        self._key(identity, target, completion.index), completion
                    ),
                )
            for request in requests:
                if written[request.target.id] < len(request.indices):
                    self._context.store.completions.mark_exhausted(self._key(identity, request.target, 0))

    def _usable(self, target: Target) -> bool:
        """Whether a target that others are waiting for can be imported; its own test will report why not."""
        try:
            self._targets.load(target)
        except SessionError:
            return False
        return True

    def _key(self, identity: str, target: Target, index: int) -> CompletionKey:
        inputs = self._context.inputs(target)
        return CompletionKey(target.source_hash, f"{identity} inputs/{inputs}" if inputs else identity, index)

    def _missing(self, identity: str, target: Target, count: int) -> tuple[int, ...]:
        keys = [self._key(identity, target, index) for index in range(count)]
        if self._context.store.completions.exhausted(keys[0]):
            return ()
        return tuple(key.index for key in keys if self._context.known.completions.known(key) is None)


def _names(requests: Sequence[Request]) -> str:
    first = requests[0].target.name
    return first if len(requests) == 1 else f"{first} and {len(requests) - 1} more"
