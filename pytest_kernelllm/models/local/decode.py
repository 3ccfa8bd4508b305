"""Writes many samples of many prompts at once, token by token, with a loaded causal language model.

A decode step of a large model takes some milliseconds on a GPU and ten times as long in Python, whatever the
batch size. So one step for all rows is captured as a CUDA graph and replayed, a prompt is processed once for
all its samples, waiting samples take over the rows of finished ones, and the host reads results one chunk
behind the GPU (continuous batching).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import DynamicCache

from pytest_kernelllm.core.cuda_graphs import capture, warm_up
from pytest_kernelllm.models.local.draw import draw
from pytest_kernelllm.models.local.slots import make_slots
from pytest_kernelllm.models.protocol import Sampling

ALIGNMENT = 64
"""A row's length is a multiple of this, in tokens."""


SMALL = 50_000_000
"""A model with fewer parameters runs on one thread of a CPU."""


@dataclass(frozen=True)
class DecodeJob:
    """A sample to write."""

    prompt: tuple[int, ...]
    """Token ids."""
    numbers: torch.Tensor
    """The uniform random numbers that draw its tokens: float32 ``[max_new_tokens]`` in [0, 1)."""


@dataclass(frozen=True)
class DecodeState:
    """The state of a sample after a chunk of steps."""

    job: int
    """Position of its job."""
    tokens: tuple[int, ...]
    """The tokens up to the stop, without an end-of-text token."""
    finish: Literal["", "stop", "length"]
    """Empty while the sample is being written."""
    spent: int
    """Number of computed tokens, including those that are dropped at the end."""


@dataclass(frozen=True)
class _Snapshot:
    """A copy of the rows after a chunk of steps; call ``wait`` before reading it."""

    row_of: dict[int, int]
    """The row of each unfinished job."""
    counts: torch.Tensor
    out: torch.Tensor
    wait: Callable[[], None]


class Decoder:
    """Decodes jobs with one model. Not thread-safe."""

    def __init__(
        self,
        model: Any,
        sampling: Sampling,
        ends: frozenset[int],
        *,
        rows: int,
        length: int,
        chunk: int = 16,
        graph: bool = False,
        behind: bool = False,
    ) -> None:
        """Prepares the rows; keys and values are allocated with the first prompt.

        Args:
            model: a causal language model of transformers with ``attention.NAME`` as its attention.
            sampling: how tokens are drawn, and the largest number of them.
            ends: ids of the tokens that end a text.
            rows: number of samples that are written side by side.
            length: number of tokens in the longest prompt plus its answer.
            chunk: number of steps between two snapshots.
            graph: whether to capture a step as a CUDA graph and replay it.
            behind: whether to read one chunk while the GPU writes the next.
        """
        self._model = model
        self._sampling = sampling
        self._ends = ends
        self._length = -(-length // ALIGNMENT) * ALIGNMENT
        self._chunk = chunk
        self._use_graph = graph
        self._behind = int(behind)
        device = model.device
        self._small = device.type == "cpu" and model.num_parameters() < SMALL
        most = sampling.max_new_tokens
        # A step reads and writes these tensors, which keep their addresses.
        self._tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._active = torch.zeros(rows, dtype=torch.int64, device=device)
        self._counts = torch.zeros(rows, dtype=torch.int64, device=device)
        self._numbers = torch.zeros((rows, most), dtype=torch.float32, device=device)
        # One extra column, to which the steps after a sample's last token write.
        self._out = torch.zeros((rows, most + 1), dtype=torch.int64, device=device)
        self._cache: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._read: tuple[tuple[int, ...], Any, torch.Tensor] | None = None

    @torch.inference_mode()
    def run(
        self, jobs: Sequence[DecodeJob], stop: Callable[[list[int]], int | None]
    ) -> Iterator[DecodeState]:
        """Yields the state of every unfinished job after each chunk of steps, until all are finished.

        Args:
            jobs: the samples to write; jobs with the same prompt should be adjacent, so that it is processed
                once.
            stop: takes the tokens so far and returns how many of them count if the text is complete, else
                None.
        """
        waiting = deque(range(len(jobs)))
        row_of: dict[int, int] = {}
        free = list(range(len(self._tokens)))
        snapshots: deque[_Snapshot] = deque()
        while waiting or row_of:
            with _one_thread() if self._small else contextlib.nullcontext():
                while waiting and free:
                    row_of |= self._admit(jobs, waiting, free)
                for _ in range(self._chunk):
                    self._step() if self._graph is None else self._graph.replay()
            snapshots.append(self._copy(row_of))
            if len(snapshots) <= self._behind:
                continue
            snapshot = snapshots.popleft()
            snapshot.wait()
            for job, row in snapshot.row_of.items():
                if row_of.get(job) != row:
                    continue  # finished in the snapshot before
                tokens = snapshot.out[row, : int(snapshot.counts[row])].tolist()
                state = self._assess(job, tokens, stop)
                if state.finish:
                    del row_of[job]
                    free.append(row)
                    self._active[row] = 0
                    self._positions[row] = 0
                yield state

    def _copy(self, row_of: Mapping[int, int]) -> _Snapshot:
        """Copies the rows as they are after the steps so far, without waiting for these."""
        counts, out = self._counts, self._out
        if not counts.is_cuda:
            return _Snapshot(dict(row_of), counts.clone(), out.clone(), lambda: None)
        pinned = [torch.empty_like(t, device="cpu", pin_memory=True) for t in (counts, out)]
        for target, source in zip(pinned, (counts, out), strict=True):
            target.copy_(source, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(counts.device))
        return _Snapshot(dict(row_of), pinned[0], pinned[1], done.synchronize)

    def _assess(self, job: int, tokens: list[int], stop: Callable[[list[int]], int | None]) -> DecodeState:
        spent = len(tokens)
        end = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        text = tokens[:end]
        counting = stop(text)
        if counting is not None:
            return DecodeState(job, tuple(text[:counting]), "stop", spent)
        if end is not None:
            return DecodeState(job, tuple(text), "stop", spent)
        most = self._sampling.max_new_tokens
        return DecodeState(job, tuple(text[:most]), "length" if spent >= most else "", spent)

    def _admit(self, jobs: Sequence[DecodeJob], waiting: deque[int], free: list[int]) -> dict[int, int]:
        """Processes the next prompt and gives rows to as many of its samples as possible."""
        prompt = jobs[waiting[0]].prompt
        admitted = {}
        while waiting and free and jobs[waiting[0]].prompt == prompt:
            admitted[waiting.popleft()] = free.pop(0)
        device = self._tokens.device
        rows = torch.tensor(list(admitted.values()), device=device)
        numbers = torch.stack([jobs[job].numbers for job in admitted]).to(device)
        read, logits = self._read_prompt(prompt)
        self._prepare(read)
        for slots, layer in zip(self._cache.layers, read.layers, strict=True):
            slots.fill(rows, layer.keys, layer.values)
        first = draw(logits.expand(len(rows), -1), numbers[:, 0], self._sampling)
        self._tokens[rows] = first
        self._positions[rows] = len(prompt)
        self._active[rows] = 1
        self._counts[rows] = 1
        self._numbers[rows] = numbers
        self._out[rows, 0] = first
        return admitted

    def _read_prompt(self, prompt: tuple[int, ...]) -> tuple[Any, torch.Tensor]:
        """Returns a prompt's ``DynamicCache`` and the logits ``[1, vocabulary]`` after it; the last prompt's are kept."""
        if self._read is None or self._read[0] != prompt:
            self._read = None  # free its memory first
            cache: Any = DynamicCache(config=self._model.config)
            ids = torch.tensor([prompt], device=self._tokens.device)
            output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            self._read = prompt, cache, output.logits[:, -1]
        return self._read[1:]

    def _prepare(self, read: Any) -> None:
        """With the first prompt, allocates memory for all rows and captures a step."""
        if self._cache is not None:
            return
        self._cache = make_slots(read, len(self._tokens), self._length, self._positions)
        if self._use_graph:
            with torch.cuda.device(self._tokens.device):
                # No row is active yet, so these steps change nothing.
                warm_up(self._step, times=2)
                self._graph = torch.cuda.CUDAGraph()
                with capture(self._graph, errors="thread_local"):
                    self._step()

    def _step(self) -> None:
        """Draws one more token for every row; inactive rows write to a column that is never read."""
        logits = self._model(
            input_ids=self._tokens[:, None],
            position_ids=self._positions[:, None],
            past_key_values=self._cache,
            use_cache=True,
            lengths=self._positions + 1,
        ).logits[:, -1]
        most = self._sampling.max_new_tokens
        column = self._counts.clamp(max=most - 1)
        numbers = self._numbers.gather(1, column[:, None]).squeeze(1)
        token = draw(logits, numbers, self._sampling)
        self._out.scatter_(1, self._counts.clamp(max=most)[:, None], token[:, None])
        self._tokens.copy_(token)
        self._counts.add_(self._active).clamp_(max=most)
        self._positions.add_(self._active).clamp_(max=self._length - 1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Makes PyTorch compute with one thread inside the block, as several wait for each other at every small operation.

    While other processes use the cores, waiting takes most of the time (on two cores: 25 s instead of 0.1 s).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
