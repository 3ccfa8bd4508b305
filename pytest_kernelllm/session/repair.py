"""Repair rounds: rejected answers go back to their generator with the verdicts on them, for better ones."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from kernelllm_judge.core.records import Completion, Target
from pytest_kernelllm.core.outcome import Outcome, best_of_rounds
from pytest_kernelllm.generate.protocol import Attempt, Generator, Repair, Request
from pytest_kernelllm.models.prompt.feedback import FEEDBACK_VERSION
from pytest_kernelllm.session.complete import Targets
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.session.turns import Turns
from pytest_kernelllm.store.completions import CompletionKey

Answered = tuple[Outcome, Completion]
"""What became of an answer, and the answer."""

Rounds = Sequence[Answered]
"""A sample's answers, the first one first."""


class RepairStage:
    """Better answers for rejected ones. Nothing that the store holds is asked for again; thread-safe."""

    def __init__(self, context: Context, targets: Targets, turns: Turns) -> None:
        """Asks for nothing yet; ``turns`` are taken while a generator computes on this machine's GPUs."""
        self._context = context
        self._targets = targets
        self._turns = turns
        self._lock = threading.Lock()
        self._alone: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._waiting: defaultdict[str, dict[CompletionKey, Repair]] = defaultdict(dict)
        """By the generator's name: what threads wait for. Whoever has the lock asks for all of it at once."""

    def answers(self, generator: Generator, target: Target, rejected: Sequence[Rounds]) -> list[Completion]:
        """Returns another answer for each sample that was rejected so far, in order."""
        return self._written(generator, [self._repair(target, own) for own in rejected])

    def _repair(self, target: Target, own: Rounds) -> Repair:
        attempts = tuple(
            Attempt(completion, outcome.verdict, outcome.candidate.source if outcome.candidate else "")
            for outcome, completion in own
        )
        request = Request(target, (own[0][1].index,), partial(self._targets.live, target))
        return Repair(request, attempts)

    def _written(self, generator: Generator, repairs: Sequence[Repair]) -> list[Completion]:
        """Returns an answer to each."""
        keys = [self._key(generator, repair) for repair in repairs]
        waiting = self._waiting[generator.name]
        with self._lock:
            waiting |= {
                key: repair
                for key, repair in zip(keys, repairs, strict=True)
                if self._context.known.completions.known(key) is None
            }
        with self._alone[generator.name]:
            with self._lock:
                asked = dict(waiting) if any(key in waiting for key in keys) else {}
            if asked:
                try:
                    self._write(generator, asked)
                finally:
                    with self._lock:
                        for key in asked:
                            if key in keys or self._context.known.completions.known(key) is not None:
                                waiting.pop(key, None)
        nothing = Completion(generator.name, 0, "", "modelnew", note="nothing was written", failed=True)
        return [self._context.known.completions.known(key) or nothing for key in keys]

    def _write(self, generator: Generator, asked: dict[CompletionKey, Repair]) -> None:
        with self._context.store.lock(f"repair {generator.identity()}"):
            missing = {
                key: repair
                for key, repair in asked.items()
                if self._context.known.completions.known(key) is None
            }
            if not missing:  # another process was quicker
                return
            names = ", ".join(sorted({repair.request.target.name for repair in missing.values()}))
            self._context.progress(f"{names}: {generator.name} repairs {len(missing)} of its answers")
            with self._turns.writing() if generator.on_gpu else nullcontext():
                keys = {id(repair): key for key, repair in missing.items()}
                for repair, completion in generator.repair(list(missing.values())):
                    self._context.known.completions.keep(keys[id(repair)], completion)
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
        inputs = self._context.inputs(target)
        identity = generator.identity() + (f" inputs/{inputs}" if inputs else "")
        return CompletionKey(target.source_hash, f"{identity} repair/{FEEDBACK_VERSION} {before}", index)


def may_improve(last: Answered) -> bool:
    """Whether another answer may do better: the last one was answered, judged, and not accepted."""
    outcome, completion = last
    if completion.failed or not completion.model:  # nothing was asked of the model
        return False
    return outcome.verdict is None or outcome.rejected


def outcome_of(own: Rounds) -> Outcome:
    """Returns the outcome of a sample. A request that failed for a passing reason is no round: the next run repeats it."""
    answered = [outcome for outcome, completion in own if not completion.failed] or [own[0][0]]
    best = best_of_rounds(answered) if len(answered) > 1 else answered[0]
    return replace(best, unanswered=sum(completion.failed for _, completion in own))
