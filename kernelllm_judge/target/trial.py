"""Runs a target's original a few times at small sizes, to see that it works and does not depend on gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.target.attributes import dtype_name
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.cases import Sizes
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_runtime.returned import class_name, fields_of


def try_original(
    module: nn.Module,
    sizes: Sizes,
    make: Callable[[Sizes], Call],
    bind: Callable[[Call], Mapping[str, Any]],
    watched: Callable[[], AbstractContextManager[None]],
    where: str,
) -> Any:
    """Runs the original on the CPU, with and without gradients, and returns what it returns without.

    Args:
        module: a built module; calling it may change it.
        sizes: of named dimensions, see ``work.trial_sizes``.
        make: makes inputs of given sizes.
        bind: returns arguments by name, for messages.
        watched: gives the context of each call, and only of it.
        where: names the target in messages.

    Raises:
        TargetError: the original fails, or its results depend on whether gradients are required.
    """
    call = make(sizes)
    try:
        found = _returned(module, call, watched, grad=False)
    except (Exception, SystemExit) as error:
        shown = ", ".join(f"{name}: {_shown(value)}" for name, value in bind(call).items())
        raise TargetError(
            f"{where}: forward({shown}) fails: {in_one_line(error)}; check init= and inputs=."
        ) from error
    results = _leaves(found)
    differs = any(_differs(module, make, sizes, watched, results, required) for required in (False, True))
    if differs:
        raise TargetError(
            f"{where}: forward returns other values where gradients are enabled or required; no kernel can be adopted "
            "for it."
        )
    return found


def dataclass_returned(shown: Sequence[Any], where: str) -> str:
    """Returns the dataclass that an original returns, as domains name it; empty if it returns none.

    Args:
        shown: what it returned in several calls.
        where: names the target in messages.

    Raises:
        TargetError: it returns several kinds, or one that cannot be made again from its fields.
    """
    names = {class_name(each) for each in shown}
    if len(names) > 1:
        kinds = sorted(name.rpartition(":")[2] or "something else" for name in names)
        raise TargetError(
            f"{where}: forward returns {' or '.join(kinds)}; mark the calls in files of their own."
        )
    for each in shown:
        fields = fields_of(each)
        if fields is None:
            continue
        try:
            again = fields_of(type(each)(**fields))
        except Exception as error:  # its constructor is the user's
            again, why = None, f" ({in_one_line(error)})"
        else:
            why = ""
        if again is None or list(again) != list(fields):
            raise TargetError(
                f"{where}: the {type(each).__name__} that forward returns cannot be made from its fields{why}."
            )
    return names.pop() if names else ""


def _differs(
    module: nn.Module,
    make: Callable[[Sizes], Call],
    sizes: Sizes,
    watched: Callable[[], AbstractContextManager[None]],
    results: list[Any],
    required: bool,
) -> bool:
    """Whether results differ with gradients enabled, and are the same as before without."""
    before = {each: each.requires_grad for each in module.parameters()}
    call = make(sizes)
    if required:
        call = call.map(requiring)
    for each in before:
        each.requires_grad_(required and each.is_floating_point())
    try:
        others = _leaves(_returned(module, call, watched, grad=True))
    except Exception:  # which a user would see as well
        others = results
    for each, requires_grad in before.items():
        each.requires_grad_(requires_grad)
    if _alike(results, others):
        return False
    return _alike(results, _leaves(_returned(module, make(sizes), watched, grad=False)))


def requiring(value: Any) -> Any:
    """A tensor that requires gradients and is no leaf, so that the original may write to it."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.requires_grad_().clone()
    return value


def _returned(
    module: nn.Module, call: Call, watched: Callable[[], AbstractContextManager[None]], grad: bool
) -> Any:
    with seeded(0, "cpu"), torch.set_grad_enabled(grad), watched():
        return module(*call.args, **call.kwargs)


def _leaves(returned: Any) -> list[Any]:
    fields = fields_of(returned)
    return tree_leaves(returned if fields is None else fields)


def _alike(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return type(one) is type(other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    ours, theirs = computable(one.detach()), computable(other.detach())
    # Other algorithms may round in another way, also what sums to nearly nothing: attention does in bfloat16.
    step = torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0
    largest = float(ours.abs().nan_to_num(0.0, 0.0).max()) if step and ours.numel() else 0.0
    return torch.allclose(ours, theirs, rtol=1e-2, atol=max(1e-4, 4 * step * largest), equal_nan=True)


def _shown(value: Any) -> str:
    return f"{dtype_name(value.dtype)}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
