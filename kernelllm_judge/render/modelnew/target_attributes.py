"""Looks up the values and tensors that a target's ``forward`` reads."""

from __future__ import annotations

from collections.abc import Mapping

from kernelllm_judge.core.records import Scalar, TensorSpec
from kernelllm_judge.render.modelnew.settings import same


class TargetAttributes:
    """What the target's ``forward`` reads below one of its modules, by name relative to that module."""

    def __init__(self, attributes: Mapping[str, TensorSpec | Scalar], at: str) -> None:
        """Takes the attributes of a domain; ``at`` is empty or the module's path with a dot behind it."""
        self._specs = {
            name.removeprefix(at): spec for name, spec in attributes.items() if name.startswith(at)
        }

    def __contains__(self, name: str) -> bool:
        """Whether an attribute of exactly this name is read."""
        return name in self._specs

    def reaches(self, name: str) -> bool:
        """Whether ``self.<name>`` starts with an attribute, a sequence or a submodule."""
        parts = name.split(".")
        prefixes = {".".join(parts[: i + 1]) for i in range(len(parts))}
        return any(f"{p}{held}" in self._specs for p in prefixes for held in ("", ".__class__", "[0]"))

    def equals(self, name: str, value: object) -> bool:
        """Whether an attribute has this plain value."""
        return name in self._specs and _is(self._specs[name], value)

    def only_with(self, value: object) -> str | None:
        """Returns the one attribute with a value; None where there are none or several."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None  # too common to be evidence
        named = {k: v for k, v in self._specs.items() if not k.endswith("__class__") and "[" not in k}
        found = [name for name, spec in named.items() if _is(spec, value)]
        return found[0] if len(found) == 1 else None

    def in_words(self, tensors: bool = False) -> str:
        """Returns a clause that lists the attributes, or only the tensors among them."""
        names = [
            k
            for k, v in self._specs.items()
            if not k.endswith("__class__") and (isinstance(v, TensorSpec) or not tensors)
        ]
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f"the target has only {listed}" if names else "the target has none"


def _is(spec: TensorSpec | Scalar, value: object) -> bool:
    return not isinstance(spec, TensorSpec) and (spec is None) == (value is None) and same(spec, value)
