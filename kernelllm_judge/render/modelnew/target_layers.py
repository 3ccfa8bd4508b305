"""Writes how a kernel module reaches and calls the target's own layers."""

from __future__ import annotations

import ast

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.records import Domain
from kernelllm_judge.core.syntax import expression
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.layers import VENDOR, call_of, differs_in_training, is_stock


class TargetLayers:
    """The layers of a target, by dotted name."""

    def __init__(self, domain: Domain, parts: Parts) -> None:
        """Prepares; files are read when they are asked for."""
        self._domain, self._parts = domain, parts

    def class_of(self, path: str) -> str:
        """Returns a layer's class, such as ``torch.nn.modules.linear.Linear``; nothing where there is no layer."""
        cls = self._domain.attributes.get(f"{path}.__class__")
        return cls if isinstance(cls, str) else ""

    def is_vendor(self, path: str) -> bool:
        """Whether a layer can be called as it is."""
        cls = self.class_of(path)
        name = cls.rpartition(".")[2]
        return name in VENDOR and is_stock(cls, name)

    def listed(self, path: str) -> list[str]:
        """Returns the layers of a list or a sequence; none for anything else."""
        held = self._parts.containers.get(path)
        return [f"{path}.{part}" for part in held.names] if held and held.kind == "list" else []

    def reached(self, path: str) -> ast.expr:
        """Writes the part with a dotted name."""
        text = self._parts.expression(path)
        if text is None:
            raise RenderError(f"No Python expression reaches the target's attribute `{path}`.")
        return expression(text)

    def call(self, path: str, x: ast.expr, line: int) -> ast.expr:
        """Writes the call of a layer, and of all layers of a sequence.

        Args:
            path: the layer.
            x: the argument.
            line: the line of the completion, for messages.
        """
        cls = self.class_of(path)
        name = cls.rpartition(".")[2]
        if is_stock(cls, "Sequential"):
            for part in self.listed(path):
                x = self.call(part, x, line)
            return x
        if self.is_vendor(path):
            return ast.Call(self.reached(path), [x], [])
        if is_stock(cls, name) and not (self._domain.training and differs_in_training(name)):
            call = call_of(cls, x, lambda attribute: self._attribute(path, attribute))
            if call is not None:
                return call
        when = " in training" if self._domain.training else ""
        raise RenderError(
            f"Line {line} calls {self._parts.expression(path)}, a {name}, which has no form in a kernel module{when}."
        )

    def _attribute(self, path: str, name: str) -> ast.expr | None:
        known = {f"{path}.{name}", f"{path}.{name}[0]"} & self._domain.attributes.keys()
        return self.reached(f"{path}.{name}") if known else None
