"""The text of an emitted program; allocations stay separate until all dtypes are known."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.generate.render.inductor.kernel_text import call_text


@dataclass(frozen=True)
class Allocation:
    """A statement that allocates a buffer."""

    head: str
    sizes: tuple[str, ...]
    """The shape, and the strides if they are not row-major."""
    dtypes: tuple[str, ...]
    """The dtype (``torch.float32``) in each domain that the text serves."""
    reference: str
    """The tensor whose device is used."""
    references: tuple[str, ...]
    """The dtype of the reference in each domain."""
    output: bool

    def text(self) -> str | None:
        """Writes the statement; returns None if no single text gives the right dtype in every domain."""
        same = self.dtypes == self.references
        if len(set(self.dtypes)) == 1 and not (same and (self.output or self.dtypes[0] != "torch.float32")):
            dtype = self.dtypes[0]
        elif same:
            dtype = f"{self.reference}.dtype"
        else:
            return None
        return call_text(
            self.head, [*self.sizes, f"dtype={dtype}", f"device={self.reference}.device"], indent=4
        )


@dataclass(frozen=True)
class ProgramText:
    """The text of one program."""

    kernels: tuple[str, ...]
    """The kernels' definitions, in the order of their launches."""
    names: tuple[str, ...]
    statements: tuple[str | Allocation, ...]
    """The statements of ``forward``, not indented."""
    helpers: frozenset[str]
    """The device functions that the kernels call."""

    def lines(self) -> list[str]:
        """Returns the statements as text."""
        return [s if isinstance(s, str) else s.text() or "" for s in self.statements]
