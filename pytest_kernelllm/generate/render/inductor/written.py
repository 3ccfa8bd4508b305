"""What emitting a program gives: text, with allocations kept apart until every dtype is known."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.generate.render.inductor.kernel_text import call_text


@dataclass(frozen=True)
class Allocation:
    """A statement that makes a buffer."""

    head: str
    sizes: tuple[str, ...]
    """Its shape, and its strides where they are not row-major."""
    dtypes: tuple[str, ...]
    """``torch.float32``: in each domain that the text serves."""
    reference: str
    """The tensor whose device it takes."""
    references: tuple[str, ...]
    """Dtype of the reference in each domain."""
    output: bool

    def text(self) -> str | None:
        """The statement; None if no one text makes the right dtype in every domain."""
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
class Written:
    """Text of one program."""

    kernels: tuple[str, ...]
    """Definitions, in the order of their launches."""
    names: tuple[str, ...]
    statements: tuple[str | Allocation, ...]
    """Of ``forward``, not indented."""
    helpers: frozenset[str]
    """Functions of ``device`` that the kernels call."""

    def lines(self) -> list[str]:
        """The statements as text."""
        return [s if isinstance(s, str) else s.text() or "" for s in self.statements]
