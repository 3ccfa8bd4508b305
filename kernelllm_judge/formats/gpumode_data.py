"""Takes apart what ``generate_input`` of a GPU MODE problem makes, and finds out where answers may write."""

from __future__ import annotations

import ast
import functools
import importlib
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.shorten import whole
from kernelllm_judge.core.syntax import free_name
from kernelllm_judge.pair_files import PairError, read_text

REFERENCE = "reference.py"

_HOLDERS = (dict, list, tuple)


@dataclass(frozen=True)
class Leaf:
    """A tensor or a plain value in ``data``."""

    keys: tuple[Any, ...]
    """Where it is in ``data``."""
    name: str
    """The parameter of ``forward``."""
    written: bool = False
    """Whether its content does not matter."""

    @property
    def path(self) -> str:
        """How it is reached, such as ``data[1]['weight']``."""
        return "data" + "".join(f"[{key!r}]" for key in self.keys)

    @property
    def passed(self) -> str:
        """How ``forward`` passes it on."""
        return f"torch.empty_like({self.name})" if self.written else self.name


def taken_apart(package: Path, test: Mapping[str, Any]) -> tuple[Any, list[Leaf]]:
    """Imports a problem's reference, and calls it.

    Args:
        package: the folder that the problem was written to, a package.
        test: arguments of ``generate_input``.

    Returns:
        What ``generate_input`` makes, and its tensors and plain values.

    Raises:
        PairError: the reference has another form, or fails.
    """
    importlib.invalidate_caches()  # the package was written just now
    sys.path.insert(0, str(package.parent))
    try:
        module = importlib.import_module(f"{package.name}.reference")
        make, right = module.generate_input, module.ref_kernel
        data = make(**test)
        names = _unpacked(read_text(package / REFERENCE))
        expected = _outputs(right, make(**test))
        leaves = [
            replace(leaf, written=_unread(leaf, make, test, right, expected)) for leaf in _leaves(data, names)
        ]
        return data, leaves
    except PairError:
        raise
    except (Exception, SystemExit) as error:  # the problem's own code may raise anything
        raise PairError(
            f"The reference of the problem cannot be called: {type(error).__name__}: {whole(error)}."
        ) from error
    finally:
        sys.path.remove(str(package.parent))


def _unpacked(reference: str) -> list[str]:
    """Returns the names to which ``ref_kernel`` unpacks its parameter; none where it does not."""
    function = next(
        (n for n in ast.parse(reference).body if isinstance(n, ast.FunctionDef) and n.name == "ref_kernel"),
        None,
    )
    if function is None or not function.args.args:
        raise PairError("reference.py has no function ref_kernel(data).")
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id=value)) if (
                value == function.args.args[0].arg
            ):
                return [each.id for each in names if isinstance(each, ast.Name)]
    return []


def _leaves(data: Any, names: Sequence[str]) -> Iterator[Leaf]:
    """Yields what ``data`` holds; ``names`` are those of its own items, where they are as many."""
    taken = {"self", "torch"}

    def found(value: Any, keys: tuple[Any, ...], name: str) -> Iterator[Leaf]:
        if isinstance(value, _HOLDERS):
            for key, each in _items(value):
                own = names[key] if value is data and len(names) == len(value) else f"{name}_{key}"
                yield from found(each, (*keys, key), own)
            return
        name = free_name(re.sub(r"\W", "_", name), taken)
        taken.add(name)
        yield Leaf(keys, name)

    return found(data, (), "data")


def _items(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _unread(
    leaf: Leaf,
    make: Callable[..., Any],
    test: Mapping[str, Any],
    right: Callable[[Any], Any],
    expected: Sequence[torch.Tensor],
) -> bool:
    """Whether the reference gives the same whatever a tensor holds."""
    for filled in (0, 1):
        data = make(**test)
        tensor = functools.reduce(operator.getitem, leaf.keys, data)
        if not isinstance(tensor, torch.Tensor):
            return False
        try:
            found = _outputs(right, (tensor.fill_(filled), data)[1])
        except Exception:  # such as an index out of range
            return False
        if [f.shape for f in found] != [e.shape for e in expected]:
            return False
        if not all(torch.equal(f.nan_to_num(), e.nan_to_num()) for f, e in zip(found, expected, strict=True)):
            return False
    return True


def _outputs(right: Callable[[Any], Any], data: Any) -> list[torch.Tensor]:
    return [each.clone() for each in tree_leaves(right(data)) if isinstance(each, torch.Tensor)]


def rebuilt(value: Any, leaves: Sequence[Leaf]) -> str:
    """Returns an expression that puts ``data`` together again."""
    passed = {leaf.keys: leaf.passed for leaf in leaves}

    def text(value: Any, keys: tuple[Any, ...]) -> str:
        if keys in passed:
            return passed[keys]
        parts = [(key, text(each, (*keys, key))) for key, each in _items(value)]
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in parts) + "}"
        inner = ", ".join(part for _, part in parts)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"

    return text(value, ())
