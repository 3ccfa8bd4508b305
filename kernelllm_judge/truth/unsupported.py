"""Refuses originals that cannot be judged, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.core.shorten import whole
from kernelllm_judge.findings import OriginalError
from kernelllm_judge.policy import Policy
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth import calls, numerics
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.honest import shape_and_kind
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.rows import CHUNK
from kernelllm_runtime.domain import same_value
from kernelllm_runtime.leaves import leaves


@contextmanager
def original_errors(probe: Probe) -> Iterator[None]:
    """Raises errors of the user's code as an ``OriginalError`` that names the probe."""
    try:
        yield
    except (torch.OutOfMemoryError, Unasked):
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        if isinstance(error.__cause__, torch.OutOfMemoryError):
            raise error.__cause__ from None
        where = probe.describe()
        raise OriginalError(
            f"the original fails at {where}: {type(error).__name__}: {whole(error)}"
        ) from error


def refuse_incomparable(output: Any, probe: Probe) -> None:
    """Outputs must be tensors in plain tuples, lists, dicts and ``torch.return_types``: a kernel can give nothing else back."""
    where = probe.describe()
    kind = type(output)
    if isinstance(output, tuple | list | Mapping):
        if kind not in (tuple, list, dict) and kind.__module__ != "torch.return_types":
            raise OriginalError(
                f"the original returns a {kind.__name__} at {where}; a kernel returns plain tuples, lists and "
                "dicts, and callers that read fields by name would fail"
            )
        parts = list(output.values()) if isinstance(output, dict) else list(output)
        for part in parts:
            if part is not None:
                refuse_incomparable(part, probe)
        if not parts or all(part is None for part in parts):
            raise OriginalError(f"the original returns an empty {kind.__name__} at {where}")
    elif not isinstance(output, torch.Tensor):
        raise OriginalError(f"the original must return tensors, but returns a {kind.__name__} at {where}")
    elif output.is_complex():
        raise OriginalError(f"the original returns complex numbers at {where}, which are not supported")
    elif output.layout != torch.strided:
        raise OriginalError(f"the original returns a sparse tensor at {where}, which is not supported")


def refuse_random(
    module: torch.nn.Module,
    arguments: dict[str, Any],
    original: list[torch.Tensor],
    policy: Policy,
    probe: Probe,
) -> None:
    """Refuses an original whose outputs depend on PyTorch's seed, apart from the rounding of sums.

    Raises:
        OriginalError: the outputs differ.
    """
    with original_errors(probe):
        again = flatten(calls.call_original(module, arguments, 1))[1]
    same = numerics.expect(None, original, None, [], policy)
    for i, leaf in enumerate(again):
        alike = shape_and_kind(leaf) == shape_and_kind(original[i])
        tolerance = max(1e-4, 8 * torch.finfo(leaf.dtype).eps) if leaf.is_floating_point() else None
        if not alike or not numerics.compare(leaf, same, i, policy, tolerance).passed:
            raise OriginalError(
                f"the original is random: two calls with the same inputs give different outputs, at "
                f"{probe.describe()}; turn off dropout, sampling and whatever else draws random numbers"
            )


def updated_buffers(module: torch.nn.Module, arguments: dict[str, Any], probe: Probe) -> tuple[str, ...]:
    """Returns the names of the buffers that a call of the original changes, which a kernel must change in the same way.

    Raises:
        OriginalError: it changes an input, or a buffer's shape or dtype; the text names it.
    """
    fresh = calls.copied(module, lambda tensor: tensor, torch.clone)
    inputs = nested(calls.mapped(arguments, torch.clone))
    with original_errors(probe), torch.no_grad():
        fresh(**inputs)
    given = dict(leaf for name, value in inputs.items() for leaf in leaves(name, value))
    before, after = (dict(each.named_buffers(remove_duplicate=False)) for each in (module, fresh))
    others = [k for k in before.keys() | after.keys() if _form(before.get(k)) != _form(after.get(k))]
    changed = [f"the shape or dtype of its buffer `{name}`" for name in sorted(others)]
    # A list or dict may also have got other parts.
    kept = [name for name, value in arguments.items() if name in given and _same(value, given[name])]
    changed += [f"its input `{name}`" for name in {**arguments, **given} if name not in kept]
    if changed:
        raise OriginalError(
            f"the original changes {' and '.join(changed)} as it runs, at {probe.describe()}; a kernel must not: "
            "move the change out of it"
        )
    return tuple(name for name, value in before.items() if not _same(value, after[name]))


def _form(tensor: torch.Tensor | None) -> tuple[Any, ...]:
    return () if tensor is None else (tensor.shape, tensor.dtype)


def _same(before: Any, after: Any) -> bool:
    if not isinstance(before, torch.Tensor):
        return same_value(before, after)
    if not isinstance(after, torch.Tensor) or _form(before) != _form(after):
        return False
    pairs = zip(before.reshape(-1).split(CHUNK), after.reshape(-1).split(CHUNK), strict=True)
    return all(torch.equal(*(computable(each).nan_to_num() for each in (a, b))) for a, b in pairs)
