"""Reads a worker's account of what ``forward`` launches at some sizes. Nothing in it is believed to have the right form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernelllm_judge.core.records import Record, RecordError
from kernelllm_judge.core.shorten import whole
from kernelllm_judge.handle import WorkerDied

LARGEST = 1 << 62
INVALID = "its reply to `trace` is not a valid report"


class Untraced(Exception):
    """A call cannot be followed without values; one phrase says why."""


@dataclass(frozen=True)
class Pointed(Record):
    """Where a pointer among a launch's arguments points to."""

    storage: int
    offset: int
    """Bytes from the storage's start."""
    size: int
    """Bytes of an element."""


@dataclass(frozen=True)
class Launch(Record):
    """One launch."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[int | Pointed | None, ...]
    """None: what no address should depend on, such as a float."""


@dataclass(frozen=True)
class Output(Record):
    """Where an output lies."""

    name: str
    storage: int
    offset: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Form(Record):
    """One call. Sizes, offsets, strides, grids and scalars are what a report says, or their places in ``Run.numbers``."""

    launches: tuple[Launch, ...]
    outputs: tuple[Output, ...]
    bytes: tuple[int, ...]
    """Of each storage."""
    unwritten: tuple[int, ...]
    """Storages in which PyTorch has written nothing."""
    variants: int
    """How many configurations of autotuned kernels there are to follow."""
    more: bool
    """Whether there are more."""

    def changed(self, change: Callable[[int], int]) -> Form:
        """Returns it with each number changed, always in the same order."""

        def argument(value: int | Pointed | None) -> int | Pointed | None:
            if isinstance(value, Pointed):
                return replace(value, offset=change(value.offset))
            return None if value is None else change(value)

        def launch(each: Launch) -> Launch:
            x, y, z = map(change, each.grid)
            return replace(each, grid=(x, y, z), arguments=tuple(map(argument, each.arguments)))

        def output(each: Output) -> Output:
            shape, strides = tuple(map(change, each.shape)), tuple(map(change, each.strides))
            return replace(each, offset=change(each.offset), shape=shape, strides=strides)

        sizes = tuple(map(change, self.bytes))
        return replace(
            self,
            bytes=sizes,
            launches=tuple(map(launch, self.launches)),
            outputs=tuple(map(output, self.outputs)),
        )


@dataclass(frozen=True)
class Run:
    """One call, at certain sizes."""

    form: Form
    """Equal for runs that differ in numbers only: holds places in ``numbers``."""
    numbers: tuple[int, ...]


def read(report: Any) -> Run:
    """Returns a run as it was reported.

    Raises:
        Untraced: the call failed.
        WorkerDied: the report has another form.
    """
    if isinstance(report, dict) and isinstance(report.get("error"), dict):
        kind, message = (str(report["error"].get(key)) for key in ("type", "message"))
        raise Untraced(f"without values it fails: {kind[:60]}: {whole(message)}")
    try:
        form = Form.from_json(report)
    except (RecordError, TypeError, AttributeError):
        raise WorkerDied(INVALID) from None
    numbers: list[int] = []

    def take(number: int) -> int:
        numbers.append(number)
        return len(numbers) - 1

    pointers = [each for launch in form.launches for each in launch.arguments if isinstance(each, Pointed)]
    placed: list[Pointed | Output] = [*pointers, *form.outputs]
    storages = [*form.unwritten, *(each.storage for each in placed)]
    natural = [*form.bytes, *(count for launch in form.launches for count in launch.grid)]
    natural += [size for output in form.outputs for size in (output.offset, *output.shape)]
    run = Run(form.changed(take), tuple(numbers))
    if (
        not all(0 <= each < len(form.bytes) for each in storages)
        or min([0, *natural, *(each.offset for each in pointers)]) < 0
        or min([1, form.variants, *(each.size for each in placed)]) < 1
        or any(abs(each) > LARGEST for each in numbers)
    ):
        raise WorkerDied(INVALID)
    return run


def texts_of(reply: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the name and the intermediate code of each kernel that is new."""
    kernels = reply.get("kernels")
    if not isinstance(kernels, dict):
        raise WorkerDied(INVALID)
    for each in kernels.values():
        if not isinstance(each, dict) or not isinstance(each.get("text"), str):
            raise WorkerDied(INVALID)
    return {key: (str(each.get("name"))[:80], each["text"]) for key, each in kernels.items()}
