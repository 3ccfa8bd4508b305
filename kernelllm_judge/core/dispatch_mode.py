"""The base of contexts that see every operation of PyTorch."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A context that sees PyTorch's operations, in which nothing is compiled."""

    def __init__(self) -> None:
        """Prepares; operations are seen once it is entered."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: True would import the compiler, which takes three seconds."""
        return False
