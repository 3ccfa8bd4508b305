"""Repair rounds: rejected answers go back to their generator with the verdicts on them, for better ones."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kernelllm_judge.core.records import CandidateId, Completion, Target
from pytest_kernelllm.core.outcome import Outcome, best_of_rounds
from pytest_kernelllm.generate.protocol import Attempt, Generator, Repair, Request
from pytest_kernelllm.models.prompt.feedback import FEEDBACK_VERSION
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

Answered = tuple[Outcome, Completion]
"""What became of an answer, and the answer."""


class RepairStage:
    """Repairs of rejected answers. Nothing that the store holds is asked for again; thread-safe."""

    def __init__(
        self,
        store: Store,
        rounds: int,
        live: Callable[[Target], LiveTarget],
        judged: Callable[[Target, Sequence[tuple[CandidateId, Completion]]], list[Outcome]],
        progress: Callable[[str], None],
        inputs: Callable[[Target], str] = lambda target: "",
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Asks for nothing yet.

        Args:
            store: where answers are kept.
            rounds: how often an answer is sent back at most.
            live: imports a target.
            judged: renders and judges completions.
            progress: called with a few words about what is being done.
            inputs: fingerprint of the inputs that a conftest gives a target.
            alone: entered while a generator computes on this machine's GPUs.
        """
        self._store = store
        self._memo = Memo(store.completions, lasts=lambda completion: not completion.failed)
        self._rounds = rounds
        self._live = live
        self._judged = judged
        self._progress = progress
        self._inputs = inputs
        self._alone = alone
        self._lock = threading.Lock()
        self._turn: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._waiting: defaultdict[str, dict[CompletionKey, Repair]] = defaultdict(dict)
        """By the generator's name: what threads wait for. Whoever has the turn asks for all of it at once."""

    def repaired(self, generator: Generator, target: Target, answered: Sequence[Answered]) -> list[Outcome]:
        """Returns what became of a target's samples, in their order, after at most so many rounds.

        Args:
            generator: wrote the answers.
            target: that they are for.
            answered: each sample's first answer.

        Raises:
            GenerateError: the generator cannot work.
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        samples = [[each] for each in answered]
        last = self._rounds if generator.repairs else 0
        for number in range(1, last + 1):
            rejected = [own for own in samples if len(own) == number and _may_improve(own[-1])]
            if not rejected:
                break
            written = self._written(generator, [self._repair(target, own) for own in rejected])
            ids = [own[0][0].id for own in rejected]
            outcomes = self._judged(target, list(zip(ids, written, strict=True)))
            for own, outcome, completion in zip(rejected, outcomes, written, strict=True):
                own.append((outcome, completion))
        return [_outcome(own) for own in samples]

    def _repair(self, target: Target, own: Sequence[Answered]) -> Repair:
        attempts = tuple(
            Attempt(completion, outcome.verdict, outcome.candidate.source if outcome.candidate else "")
            for outcome, completion in own
        )
        request = Request(target, (own[0][1].index,), partial(self._live, target))
        return Repair(request, attempts)

    def _written(self, generator: Generator, repairs: Sequence[Repair]) -> list[Completion]:
        """Returns an answer to each."""
        keys = [self._key(generator, repair) for repair in repairs]
        waiting = self._waiting[generator.name]
        with self._lock:
            waiting |= {
                key: repair
                for key, repair in zip(keys, repairs, strict=True)
                if self._memo.known(key) is None
            }
        with self._turn[generator.name]:
            with self._lock:
                asked = dict(waiting) if any(key in waiting for key in keys) else {}
            if asked:
                try:
                    self._write(generator, asked)
                finally:
                    with self._lock:
                        for key in asked:
                            if key in keys or self._memo.known(key) is not None:
                                waiting.pop(key, None)
        nothing = Completion(generator.name, 0, "", "modelnew", note="nothing was written", failed=True)
        return [self._memo.known(key) or nothing for key in keys]

    def _write(self, generator: Generator, asked: dict[CompletionKey, Repair]) -> None:
        with self._store.lock(f"repair {generator.identity()}"):
            missing = {key: repair for key, repair in asked.items() if self._memo.known(key) is None}
            if not missing:  # another process was quicker
                return
            names = ", ".join(sorted({repair.request.target.name for repair in missing.values()}))
            self._progress(f"{names}: {generator.name} repairs {len(missing)} of its answers")
            with self._alone() if generator.on_gpu else nullcontext():
                keys = {id(repair): key for key, repair in missing.items()}
                for repair, completion in generator.repair(list(missing.values())):
                    self._memo.keep(keys[id(repair)], completion)
                if generator.on_gpu:
                    generator.release()

    def _key(self, generator: Generator, repair: Repair) -> CompletionKey:
        """Names an answer by those before it and by what was wrong with them, not by its feedback's words.

        What a reason says besides (seeds, times) may differ between two verdicts on one text.
        """
        facts = [
            (a.completion.text, (a.verdict.verdict, a.verdict.stage, a.verdict.rule) if a.verdict else None)
            for a in repair.attempts
        ]
        before = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        target, (index,) = repair.request.target, repair.request.indices
        inputs = self._inputs(target)
        identity = generator.identity() + (f" inputs/{inputs}" if inputs else "")
        return CompletionKey(target.source_hash, f"{identity} repair/{FEEDBACK_VERSION} {before}", index)


def _may_improve(last: Answered) -> bool:
    """Whether another answer may do better: the last one was answered, judged, and not accepted."""
    outcome, completion = last
    if completion.failed or not completion.model:  # nothing was asked of the model
        return False
    return outcome.verdict is None or outcome.rejected


def _outcome(own: Sequence[Answered]) -> Outcome:
    """Returns the outcome of a sample. A request that failed for a passing reason is no round: the next run repeats it."""
    answered = [outcome for outcome, completion in own if not completion.failed] or [own[0][0]]
    best = best_of_rounds(answered) if len(answered) > 1 else answered[0]
    return replace(best, unanswered=len(own) - len(answered))


class Turns:
    """Lets several threads judge, or one write on the GPU on which they judge."""

    def __init__(self) -> None:
        """Nobody is at work."""
        self._changed = threading.Condition()
        self._judging = 0
        self._writing = False
        self._wanted = 0

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Waits until nobody writes or waits to, and holds writing up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._wanted)
            self._judging += 1
        try:
            yield
        finally:
            with self._changed:
                self._judging -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Waits until nobody judges, and holds judging up."""
        with self._changed:
            self._wanted += 1
            self._changed.wait_for(lambda: not self._writing and not self._judging)
            self._wanted -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
