"""Reads a worker's account of what ``forward`` launches at some sizes. Nothing in it is believed to have the right form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.handle import WorkerDied

LARGEST = 1 << 62


class Untraced(Exception):
    """A call cannot be followed without values; one phrase says why."""


@dataclass(frozen=True)
class Pointed:
    """Where a pointer among a launch's arguments points to."""

    storage: int
    offset: int
    """Bytes from the storage's start."""


Argument = int | Pointed | None
"""None: what no address should depend on, such as a float."""


@dataclass(frozen=True)
class Launch:
    """One launch."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Output:
    """Where an output lies."""

    name: str
    storage: int
    offset: int
    size: int
    """Bytes of an element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One call, at certain sizes."""

    launches: tuple[Launch, ...]
    outputs: tuple[Output, ...]
    bytes: tuple[int, ...]
    """Of each storage."""
    unwritten: frozenset[int]
    """Storages in which PyTorch has written nothing."""
    variants: int
    """How many configurations of autotuned kernels there are to follow."""
    more: bool
    """Whether there are more."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for runs that differ in numbers only."""
        forms = [
            (each.kernel, *(a.storage if isinstance(a, Pointed) else a is None for a in each.arguments))
            for each in self.launches
        ]
        outputs = [(each.storage, len(each.shape), each.size) for each in self.outputs]
        return (*forms, *outputs, len(self.bytes), self.unwritten, self.variants)

    @property
    def numbers(self) -> list[int]:
        """All numbers, in an order that is the same for runs with one ``key``."""
        found = list(self.bytes)
        for launch in self.launches:
            found += launch.grid
            for argument in launch.arguments:
                found += [argument.offset] if isinstance(argument, Pointed) else []
                found += [argument] if isinstance(argument, int) else []
        for output in self.outputs:
            found += [output.offset, *output.shape, *output.strides]
        return found


def _int(value: Any, low: int = -LARGEST) -> int:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int) or not low <= value <= LARGEST:
        raise WorkerDied("its reply to `trace` is not a valid report")
    return value


def read(report: Any) -> Run:
    """Returns a run as it was reported.

    Raises:
        Untraced: the call failed.
        WorkerDied: the report has another form.
    """
    if isinstance(report, dict) and isinstance(report.get("error"), dict):
        error = report["error"]
        raise Untraced(
            f"without values it fails: {str(error.get('type'))[:60]}: {str(error.get('message'))[:200]}"
        )
    try:
        storages = tuple(_int(each, 0) for each in report["bytes"])

        def storage(value: Any) -> int:
            number = _int(value, 0)
            if number >= len(storages):
                raise IndexError
            return number

        def argument(value: Any) -> Argument:
            if isinstance(value, dict):
                return Pointed(storage(value["storage"]), _int(value["offset"], 0))
            return None if value is None else _int(value)

        launches = tuple(
            Launch(
                str(each["kernel"]),
                (_int(each["grid"][0], 0), _int(each["grid"][1], 0), _int(each["grid"][2], 0)),
                tuple(map(argument, each["arguments"])),
            )
            for each in report["launches"]
        )
        outputs = tuple(
            Output(
                str(each["name"])[:80],
                storage(each["storage"]),
                _int(each["offset"], 0),
                _int(each["size"], 1),
                tuple(_int(size, 0) for size in each["shape"]),
                tuple(_int(stride, 0) for stride in each["strides"]),
            )
            for each in report["outputs"]
        )
        unwritten = frozenset(map(storage, report["unwritten"]))
        return Run(launches, outputs, storages, unwritten, _int(report["variants"], 1), bool(report["more"]))
    except (KeyError, TypeError, IndexError, AttributeError):
        raise WorkerDied("its reply to `trace` is not a valid report") from None


def texts_of(reply: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the name and the intermediate code of each kernel that is new."""
    kernels = reply.get("kernels")
    if not isinstance(kernels, dict):
        raise WorkerDied("its reply to `trace` is not a valid report")
    found = {}
    for key, each in kernels.items():
        if not isinstance(each, dict) or not isinstance(each.get("text"), str):
            raise WorkerDied("its reply to `trace` is not a valid report")
        found[key] = str(each.get("name"))[:80], each["text"]
    return found
