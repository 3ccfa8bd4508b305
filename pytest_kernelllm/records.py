"""The data that passes between the boxes: frozen dataclasses that travel as JSON.

Standard library only. Every record has ``to_json`` and ``from_json``; ``SCHEMA`` names the version
of their published form (``docs/schema/``), and ``from_json`` refuses any other.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

SCHEMA = 1
"""Version of the JSON form of every record in this module."""

Status = Literal["accepted", "rejected", "inconclusive"]
Stage = Literal["generate", "render", "screen", "compile", "load", "run", "correctness", "timing"]
Scalar = bool | int | float | str | None


class RecordError(ValueError):
    """A stored or received record does not have the published form."""


def _decode(annotation: Any, value: Any, where: str) -> Any:
    """Check ``value`` against a type annotation and rebuild tuples and records from JSON's lists and objects."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return _decode(option, value, where)
            except RecordError:
                continue
        raise RecordError(f"{where}: {value!r} is none of {annotation}")
    if origin is Literal:
        if value not in args:
            raise RecordError(f"{where}: {value!r} is none of {args}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if len(args) != len(value):
            raise RecordError(f"{where}: expected {len(args)} items, got {len(value)}")
        return tuple(_decode(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, value, strict=True)))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {k: _decode(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(annotation, type):
        if issubclass(annotation, Record) and isinstance(value, dict):
            return annotation.from_json(value)
        if annotation is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, annotation) and not (annotation is int and isinstance(value, bool)):
            return value
    raise RecordError(f"{where}: {value!r} is not {annotation}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    return value


@dataclass(frozen=True)
class Record:
    """Base of all records: JSON out with ``to_json``, checked JSON in with ``from_json``."""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON-ready objects."""
        return typing.cast(dict[str, Any], _encode(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a record.

        Raises:
            RecordError: a field is missing, unknown or of another type; the text names it.
        """
        hints = _hints(typing.cast(Any, cls))
        fields = {f.name: f for f in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - set(fields)):
            raise RecordError(f"{cls.__name__}: unknown field {unknown[0]!r}")
        values = {}
        for name, spec in fields.items():
            if name in data:
                values[name] = _decode(hints[name], data[name], f"{cls.__name__}.{name}")
            elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
                raise RecordError(f"{cls.__name__}: field {name!r} is missing")
        return cls(**values)


# --------------------------------------------------------------------------- targets


@dataclass(frozen=True)
class Target(Record):
    """An ``nn.Module`` class marked ``@triton_candidate``, as the static scan sees it."""

    path: str
    """File that holds the marker, POSIX form, relative to the project root."""
    name: str
    """Name in ids: the class's qualified name (``RMSNorm``, ``Outer.Inner``)."""
    line: int
    """1-based line of the marker."""
    source_hash: str
    """Hash of everything the class's behaviour depends on, see ``discover.source_hash``."""
    kind: Literal["decorator", "call", "kernelbench"]
    kernel: str | None = None
    """Dotted path of the adopted kernel module, from ``kernel=``."""

    @property
    def id(self) -> str:
        """``src/layers.py::RMSNorm``, how ids, the store and the reports name it."""
        return f"{self.path}::{self.name}"


@dataclass(frozen=True)
class TensorSpec(Record):
    """A tensor of a domain: dtype name (``float32``) and shape, each entry a size or a dimension's name."""

    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Domain(Record):
    """One region a kernel was made for and verified on. Tensors are contiguous, on one CUDA device."""

    inputs: dict[str, TensorSpec | Scalar]
    """By parameter name of the target's ``forward``; arguments left at their default are not listed."""
    attributes: dict[str, TensorSpec | Scalar]
    """By dotted name (``weight``, ``fc.bias``, ``eps``): parameters and buffers, and plain values that must match."""
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Inclusive range of each named dimension."""
    training: bool = False
    grad: bool = False
    """Whether the kernel also computes gradients."""


@dataclass(frozen=True)
class Case(Record):
    """One named way to call a target, with its domain and how to build it again."""

    name: str
    """``default``, ``default-bfloat16``, ``long-float32``…"""
    dtype: str | None
    """Floating dtype that module and inputs are cast to (``float32``), or None: as the user made them."""
    domain: Domain
    sizes: dict[str, int] = field(default_factory=dict)
    """The size of each named dimension in this case."""


# --------------------------------------------------------------------------- generation


@dataclass(frozen=True)
class Completion(Record):
    """Raw text that a generator returned."""

    generator: str
    index: int
    text: str
    format: Literal["modelnew", "kernel_module", "inductor"]
    """What the text claims to be: KernelLLM's ``ModelNew``, a kernel module, or TorchInductor's output code."""
    model: str = ""
    revision: str = ""
    prompt: str = ""
    seconds: float = 0.0
    tokens: int = 0
    note: str = ""
    """One line for people: the variant ("looped reduction"), or why there is no text."""
    cost: float | None = None
    """US dollars it cost when it was written; None where nobody says."""
    failed: bool = False
    """Whether it is missing or cut off for a passing reason (a server that was down): never stored, so asked for again."""


@dataclass(frozen=True)
class Candidate(Record):
    """One proposed replacement: the kernel module that would be adopted, byte for byte."""

    target: str
    """``Target.id``"""
    index: int
    source: str
    generator: str
    note: str = ""
    translated: bool = False
    """Whether a compiler's dialect had to be translated to plain Triton."""

    @property
    def kernel_hash(self) -> str:
        """SHA-256 of the kernel module's bytes."""
        return hashlib.sha256(self.source.encode()).hexdigest()


# --------------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Check(Record):
    """One thing that was checked, with the number behind it."""

    name: str
    passed: bool
    measured: float | str | None = None
    allowed: float | str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Spread(Record):
    """20th, 50th and 80th percentile of repeated timings, in µs."""

    p20: float
    p50: float
    p80: float


@dataclass(frozen=True)
class Ratio(Record):
    """A speedup (times as fast) with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing(Record):
    """How fast the kernel is on one case. Times in µs, sizes in bytes; ``warm`` leaves L2 as it was."""

    case: str
    kernel: Spread
    eager: Spread
    kernel_warm: Spread
    eager_warm: Spread
    speedup: Ratio
    """Against eager, cold L2."""
    compiled: Spread | None = None
    compiled_warm: Spread | None = None
    speedup_compiled: Ratio | None = None
    """Against ``torch.compile``, cold L2."""
    judge_clock: float = 0.0
    """The judge's own measurement of one cold call, in µs."""
    event_clock: float = 0.0
    """The worker's CUDA events for the same calls, in µs."""
    bytes: int = 0
    """Bytes that must move: inputs, parameters and outputs once."""
    flops: int = 0
    roofline: float = 0.0
    """µs that ``bytes`` and ``flops`` need at the measured rates of this GPU."""
    roofline_share: float = 0.0
    """``roofline`` over the kernel's cold median, 0 to 1."""
    kernel_peak: int = 0
    """Bytes that a call of the kernel allocates at most, outputs included."""
    eager_peak: int = 0
    """The same for the original."""


@dataclass(frozen=True)
class Environment(Record):
    """Where a verdict holds. ``device`` is ``cpu`` (Triton interpreter) or ``cuda``."""

    device: Literal["cpu", "cuda"]
    gpu: str = ""
    driver: str = ""
    arch: str = ""
    """GPU architecture that the kernels were compiled for, e.g. ``sm_90``."""
    torch: str = ""
    triton: str = ""
    python: str = ""
    policy: str = ""
    """Version of the judge's rules."""

    @property
    def key(self) -> str:
        """Short hash that names this environment in the store."""
        text = "\0".join(f"{k}={v}" for k, v in sorted(self.to_json().items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Verdict(Record):
    """What the judge decided about one candidate, with every number behind it."""

    verdict: Status
    stage: Stage
    reason: str
    """One sentence for people; empty only when accepted."""
    kernel_hash: str
    environment: Environment
    rule: str = ""
    """The rule (``judge.rules``) that a rejected candidate broke; empty for other verdicts."""
    checks: tuple[Check, ...] = ()
    timing: tuple[Timing, ...] = ()
    cases: tuple[str, ...] = ()
    """Names of the cases that counted."""
    seconds: float = 0.0
    isolation: str = ""
    schema: int = SCHEMA

    @property
    def accepted(self) -> bool:
        """Right, and (where it was timed) fast enough."""
        return self.verdict == "accepted"

    @property
    def correct(self) -> bool:
        """Right, whatever its speed: accepted, or rejected for nothing but that."""
        return self.accepted or self.rule == "speed"

    @property
    def speedup(self) -> Ratio | None:
        """Against eager: the geometric mean over the timed cases; None where nothing was timed."""
        if not self.timing:
            return None
        n = len(self.timing)
        parts = [(t.speedup.value, t.speedup.low, t.speedup.high) for t in self.timing]
        means = [1.0, 1.0, 1.0]
        for part in parts:
            means = [m * p ** (1 / n) for m, p in zip(means, part, strict=True)]
        return Ratio(*means)


@dataclass(frozen=True)
class KernelRecord(Record):
    """What the store keeps of a judged candidate."""

    target: str
    source_hash: str
    candidate: Candidate
    verdict: Verdict
    created: str
    """UTC time, ISO 8601."""
    schema: int = SCHEMA
