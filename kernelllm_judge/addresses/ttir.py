"""Parses Triton's intermediate representation (TTIR), as text, into operations. The text comes from a worker: nothing in it is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LARGEST = 4 << 20
"""Characters of the largest text that is parsed."""

NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULTS = re.compile(r"^(%[\w$.-]+)(?::(\d+))? = ")
_OPERATION = re.compile(r'^"?([a-z_]+\.[\w.]+|[a-z_]+)"?')
_LOCATION = re.compile(r"\s*loc\((.*)\)$")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+|#loc\d*')
_BLOCK = re.compile(r"^\^(bb\d+)(?:\((.*)\))?:")
_SUCCESSOR = re.compile(r"\^(bb\d+)(?:\(([^:()]*):[^()]*\))?")
_ATTRIBUTES = re.compile(r"<?\{[^{}]*\}>?")
_SHAPE = re.compile(r"tensor<((?:\d+x)*)")


class Unparsed(ValueError):
    """The text is not of the form that is known; one phrase."""


@dataclass
class Block:
    """Operations that run one after the other."""

    name: str = "bb0"
    arguments: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass
class Operation:
    """One operation."""

    name: str
    """As in ``arith.addi``."""
    results: list[str]
    text: str
    """What follows the name, without types and place."""
    types: str
    """The types, as they are written."""
    place: str = ""
    regions: list[list[Block]] = field(default_factory=list)

    @property
    def operands(self) -> list[str]:
        """The names of the values that it takes."""
        return NAME.findall(self.text)

    @property
    def result_type(self) -> str:
        """The type of its first result, or of all that it takes."""
        return re.split(r"->|\bto\b", self.types)[-1].strip()

    @property
    def successors(self) -> list[tuple[str, list[str]]]:
        """The blocks that it goes on with, each with the values that these get."""
        return [(name, NAME.findall(values or "")) for name, values in _SUCCESSOR.findall(self.text)]

    def number(self, attribute: str) -> int:
        """Returns an attribute that is an integer, 0 where it is missing."""
        found = re.search(rf"\b{attribute} = (-?\d+)", self.text)
        return int(found[1]) if found else 0

    def numbers(self, attribute: str) -> list[int]:
        """Returns an attribute that is an array of integers."""
        found = re.search(rf"\b{attribute} = array<i32(?:: ([\d, ]*))?>", self.text)
        return [int(each) for each in (found[1] or "").split(",") if each.strip()] if found else []


def shape_of(written: str) -> tuple[int, ...]:
    """Returns the shape of a type; that of a scalar is empty."""
    found = _SHAPE.match(written.strip())
    return tuple(int(size) for size in found[1].split("x") if size) if found else ()


def element_of(written: str) -> str:
    """Returns the type of an element: ``i32``, ``f16``, ``ptr f32``."""
    inner = _SHAPE.sub("", written.strip(), count=1) if written.strip().startswith("tensor<") else written
    if pointer := re.search(r"!?tt\.ptr<(\w+)", inner):
        return f"ptr {pointer[1]}"
    return inner.strip().strip(">").split(",")[0].strip()


@dataclass
class Kernel:
    """A kernel's parameters, with their types, and its blocks."""

    parameters: list[tuple[str, str]]
    blocks: list[Block]
    aliases: dict[str, str]

    def line(self, place: str) -> int:
        """Returns the line of the kernel's source that an operation stands for, or else of a function's; 0: not known."""
        places, lines = [place], list[tuple[bool, int]]()
        for _ in range(64):
            if places:
                place = places.pop()
                found = list(_PLACE.finditer(self.aliases.get(place, place)))
                lines += [(each[1].endswith("kernel_module.py"), int(each[2])) for each in found if each[2]]
                places += [each[0] for each in reversed(found) if not each[2]]
        return next((line for own, line in lines if own), lines[0][1] if lines else 0)


def parse(text: str) -> Kernel:
    """Parses a module with one kernel.

    Raises:
        Unparsed: it has another form.
    """
    if len(text) > LARGEST:
        raise Unparsed("its intermediate code is too long")
    lines = [line.strip() for line in text.splitlines()]
    aliases = {found[1]: found[2] for line in lines if (found := _ALIAS.match(line))}
    functions = [i for i, line in enumerate(lines) if line.startswith("tt.func ")]
    if len(functions) != 1:
        raise Unparsed("it calls functions that are not inlined")
    header = lines[functions[0]]
    names = re.findall(r"(%[\w$.-]+): ((?:!?[\w.]+)(?:<[^()]*?>)?)(?= *(?:loc\(|\{|,|\)))", header)
    rest = iter(lines[functions[0] + 1 :])
    blocks, _ = _region(rest)
    return Kernel(names, blocks, aliases)


def _region(lines: Iterator[str]) -> tuple[list[Block], str]:
    """Parses up to the brace that closes a region; returns its blocks and that line."""
    blocks = [Block()]
    for line in lines:
        if line.startswith("}"):
            return blocks, line
        if not line or line.startswith("//"):
            continue
        if found := _BLOCK.match(line):
            arguments = NAME.findall(re.sub(r"loc\([^()]*(?:\([^()]*\))*[^()]*\)", "", found[2] or ""))
            if blocks[-1].operations or blocks[-1].arguments or len(blocks) > 1:
                blocks.append(Block(found[1], arguments))
            else:
                blocks = [Block(found[1], arguments)]
            continue
        blocks[-1].operations.append(_operation(line, lines))
    raise Unparsed("its intermediate code ends too early")


def _operation(line: str, lines: Iterator[str]) -> Operation:
    results: list[str] = []
    if found := _RESULTS.match(line):
        count = int(found[2] or 1)
        results = [found[1]] if not found[2] else [f"{found[1]}#{i}" for i in range(count)]
        line = line[found.end() :]
    found = _OPERATION.match(line)
    if found is None:
        raise Unparsed(f"its intermediate code has a line of another form: {line[:60]}")
    name, rest = found[1], line[found.end() :]
    regions: list[list[Block]] = []
    while rest.endswith("{"):
        blocks, closing = _region(lines)
        regions.append(blocks)
        rest = rest[:-1] + closing[1:]
    rest, place = _without_place(rest)
    bare = _ATTRIBUTES.sub("", rest)
    head, _, types = bare.partition(" : ")
    if regions and "->" in head:  # `scf.if %c -> (i32)`, `scf.for … -> (i32) : i32`
        head, _, types = head.partition("->")
    attributes = " ".join(_ATTRIBUTES.findall(rest))
    return Operation(name, results, f"{head} {attributes}", types, place, regions)


def _without_place(text: str) -> tuple[str, str]:
    """Splits off ``loc(…)`` at the end of a line."""
    at = text.rfind(" loc(")
    found = _LOCATION.match(text[at:]) if at >= 0 else None
    return (text[:at], found[1]) if found else (text, "")
