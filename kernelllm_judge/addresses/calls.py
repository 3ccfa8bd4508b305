"""One call of ``forward``: its launches with arguments and grids as numbers, or as formulas over the sizes of named dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelllm_judge.addresses.expressions import Expressions, Node
from kernelllm_judge.addresses.launches import Form, Launch, Output, Pointed
from kernelllm_judge.addresses.slices import Access, Walk
from kernelllm_judge.addresses.ttir import Unparsed, parse

ASPECTS = ("bounds", "races", "outputs")


@dataclass(frozen=True)
class Followed:
    """A kernel's accesses, and the names of its parameters; or why it cannot be followed."""

    name: str
    accesses: Sequence[Access] = ()
    parameters: Sequence[str] = ()
    unknown: str = ""

    @classmethod
    def of(cls, name: str, text: str, make: Expressions) -> Followed:
        """Follows a kernel's intermediate code."""
        try:
            kernel = parse(text)
            parameters = [each.lstrip("%") for each, _ in kernel.parameters]
            return cls(name, Walk(kernel, make).run(), parameters)
        except Unparsed as why:
            return cls(name, unknown=f"`{name}` cannot be followed: {why}")
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
            return cls(name, unknown=f"`{name}` cannot be followed: {type(error).__name__}")


@dataclass(frozen=True, eq=False)
class Scene:
    """One launch."""

    make: Expressions
    kernel: Followed
    grid: tuple[Node, ...]
    accesses: Sequence[Access]
    key: tuple[object, ...]
    """Equal for launches that are settled alike."""

    def line(self, access: Access) -> str:
        """Names the line of an access."""
        return f"line {access.line} of `{self.kernel.name}`"

    def tensor(self, access: Access) -> str:
        """Names the argument that it goes to."""
        names = self.kernel.parameters
        return f"`{names[access.base]}`" if 0 <= access.base < len(names) else "memory"

    def written(self) -> Iterator[tuple[int, list[Access], str]]:
        """Yields each storage that programs store to, with all accesses that may touch it, and why they are not compared."""
        several = any(count.value != 1 for count in self.grid)
        stores = [each for each in self.accesses if each.kind == "store" and several]
        lost = next((self.line(each) for each in stores if each.storage < 0), "")
        for storage in sorted({each.storage for each in stores}):
            here = [each for each in self.accesses if each.storage in (-1, storage)]
            other = next((self.line(p) for p in here if p.storage < 0 or p.kind == "atomic"), "")
            why = f"the address in {lost} depends on data" if lost else ""
            yield storage, here, why or (f"{other} may touch what programs write" if other else "")


@dataclass(frozen=True)
class Call:
    """One call, at one size or wherever dimensions lie in their ranges."""

    launches: Sequence[Scene]
    outputs: Sequence[Output]
    """Those in memory in which PyTorch has written nothing, so that kernels must write all of it."""
    numbers: Sequence[Node]
    """What numbers of ``outputs`` are places in."""
    dimensions: Mapping[Node, tuple[int, int]]
    """Leaves and their inclusive ranges; none where sizes are numbers."""

    @property
    def unknown(self) -> str:
        """Why some launch cannot be followed; empty: all can be."""
        return next((each.kernel.unknown for each in self.launches if each.kernel.unknown), "")

    def distinct(self) -> Iterator[Scene]:
        """Yields its launches, of those that are alike, as the layers of a model, only one."""
        yield from {scene.key: scene for scene in self.launches}.values()

    def writers(self, output: Output) -> Iterator[tuple[Scene, Access]]:
        """Yields what writes to an output's storage."""
        for scene in self.launches:
            for access in scene.accesses:
                if access.kind != "load" and access.storage == output.storage:
                    yield scene, access


@dataclass
class Shown:
    """What is shown of a call, and what is wrong with it."""

    open: dict[str, str] = field(default_factory=dict)
    """By aspect that is not shown: why."""
    broken: str = ""
    """What is wrong, where something is; for certain."""

    done: set[object] = field(default_factory=set)
    """Accesses that are inside, launches with a storage in which programs do not meet, and outputs that are whole."""

    def leave(self, aspect: str, why: str) -> None:
        """Notes that an aspect is not shown."""
        self.open.setdefault(aspect, why)


def call_of(
    make: Expressions,
    form: Form,
    numbers: Sequence[Node],
    kernels: Mapping[str, Followed],
    dimensions: Mapping[Node, tuple[int, int]] | None = None,
) -> Call:
    """Puts the numbers of a run, or formulas for them, into its kernels' accesses."""
    launches = [_scene(make, form, launch, numbers, kernels[launch.kernel]) for launch in form.launches]
    outputs = [output for output in form.outputs if output.storage in form.unwritten]
    return Call(launches, outputs, numbers, dimensions or {})


def _scene(make: Expressions, form: Form, launch: Launch, numbers: Sequence[Node], kernel: Followed) -> Scene:
    if not kernel.unknown and len(launch.arguments) != len(kernel.parameters):
        kernel = replace(kernel, accesses=(), unknown=f"`{kernel.name}` has arguments of another kind")
    grid = tuple(numbers[each] for each in launch.grid)
    by: dict[Node, Node] = {}
    key: list[object] = [kernel.name, *map(id, kernel.accesses), *grid]
    storages: dict[int, int] = {}
    """As they come: launches that differ in storages only are alike."""
    for number, argument in enumerate(launch.arguments):
        if isinstance(argument, Pointed):
            at = storages.setdefault(argument.storage, len(storages))
            key.append((number, at, numbers[argument.offset], numbers[form.bytes[argument.storage]]))
        elif argument is not None:
            value = numbers[argument]
            by |= {make.leaf("parameter", number, bits=bits): value for bits in (8, 16, 32, 64)}
            by[make.leaf("parameter", number, bits=1)] = make.make(
                "not", make.make("eq", value, make.constant(0))
            )
            key.append((number, value))
    for axis, count in enumerate(grid):
        by[make.leaf("programs", axis, bits=32)] = count
        if count.value == 1:
            by[make.program(axis)] = make.constant(0)
    placed = [_placed(make, form, launch, numbers, access, by) for access in kernel.accesses]
    return Scene(make, kernel, grid, placed, tuple(key))


def _placed(
    make: Expressions,
    form: Form,
    launch: Launch,
    numbers: Sequence[Node],
    access: Access,
    by: Mapping[Node, Node],
) -> Access:
    loops = {loop.count: make.leaf("loop", -1 - i) for i, loop in enumerate(access.loops)}
    found = access.changed(lambda node: make.replace(node, {**by, **loops}))
    argument = launch.arguments[access.base] if access.base >= 0 else None
    if not isinstance(argument, Pointed):
        return found
    start, size = numbers[argument.offset], numbers[form.bytes[argument.storage]]
    return replace(found, storage=argument.storage, start=start, bytes=size)
