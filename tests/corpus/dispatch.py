"""``python -m tests.corpus.dispatch``: adopt entries through the real runtime, and compare what is dispatched.

An entry's ``# proof:`` is an expression for ``(module, args)`` or ``(module, args, "backward")``, evaluated in its
subject's namespace. A cheat, adopted by force, must be wrong at its proof: the attack is a real one. An entry
in ``fenced/`` is right wherever it was judged, and its proof is a module in another state: there the original must run.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

if __name__ == "__main__" and "cuda" not in sys.argv:  # before anything imports Triton, see tests/conftest.py
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelllm_judge.target.live import LiveTarget
from kernelllm_runtime.instance import TextKernel, dispatching, swap
from pytest_kernelllm.runtime import explain

from .corpus import Device, compose, subject
from .entries import Entry, load


@dataclass(frozen=True)
class Dispatched:
    """What the runtime ran for an entry."""

    entry: Entry
    explained: str
    """``runtime.explain`` at the proof, or at the case if the kernel does not even run there."""
    differs: str
    """How the result at the proof differs from the original's; empty if it does not."""

    @property
    def right(self) -> bool:
        """Whether a cheat is wrong where it was adopted, and a fenced kernel did not run."""
        if self.entry.kind == "fenced":
            return not self.differs and "runs its original forward" in self.explained
        return bool(self.differs)


@dataclass(frozen=True)
class _Result:
    """All that a call leaves behind."""

    outputs: Any
    arguments: Any
    state: dict[str, torch.Tensor]
    gradients: list[torch.Tensor | None]


def dispatch(entry: Entry, device: Device) -> Dispatched:
    """Adopts an entry's kernel module as it would be shipped, and calls it and the original at the proof."""
    interpreted = {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"} if device == "cpu" else {}
    with mock.patch.dict(os.environ, {**interpreted, "KERNELLLM_STRICT": "1"}):
        return _dispatch(entry, device)


def _dispatch(entry: Entry, device: Device) -> Dispatched:
    live = subject(entry.subject, "cpu")
    kernel = _kernel(entry, live, device)
    if entry.kind == "fenced" and (why := _never_runs(live, kernel, device)):
        return Dispatched(entry, why, "it does not run where it was judged")
    namespace = {**vars(sys.modules[live.cls.__module__]), "torch": torch, "nn": nn, "math": math}
    before = dict(vars(sys.modules[live.cls.__module__]))
    try:
        expected = _call(*_proof(entry, namespace, device))
        module, args, backward = _proof(entry, namespace, device)
        swap("", module, dispatching(type(module), kernel))
        explained = explain(module, *args)
        try:
            actual = _call(module, args, backward)
        except Exception as error:
            return Dispatched(entry, explained, f"it raises {type(error).__name__}: {error}")
        return Dispatched(entry, explained, _difference(actual, expected))
    finally:
        vars(sys.modules[live.cls.__module__]).update(before)


def _kernel(entry: Entry, live: LiveTarget, device: Device) -> TextKernel:
    # A cheat is adopted for all that the cases declare, a fenced kernel for what is asked here.
    candidate = compose(entry, live, on_gpu=device == "cuda" or entry.kind != "fenced")
    return TextKernel(live.cls.__qualname__, candidate.kernel_hash, candidate.source)


def _never_runs(live: LiveTarget, kernel: TextKernel, device: Device) -> str:
    """Why the kernel runs in none of the judged cases; empty if it runs in one."""
    reasons = []
    for case in live.cases:
        module = live.build(case).to(device)
        bound = live.bind(live.inputs(case, 0))
        arguments = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in bound.items()}
        swap("", module, dispatching(type(module), kernel))
        with torch.no_grad():
            reasons.append(explain(module, **arguments))
    return "" if any("runs the kernel" in reason for reason in reasons) else reasons[0]


def _proof(
    entry: Entry, namespace: dict[str, Any], device: Device
) -> tuple[nn.Module, tuple[Any, ...], bool]:
    torch.manual_seed(0)
    module, args, *backward = eval(entry.proof, namespace)
    if device == "cuda":
        module, args = module.cuda(), pytree.tree_map_only(torch.Tensor, _on_gpu, args)
    return module, args, backward == ["backward"]


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a tensor to the GPU, with its strides and its place in the storage."""
    numbers = tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = tensor.detach().as_strided((numbers,), (1,), 0).cuda()
    moved = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return moved.requires_grad_(tensor.requires_grad)


def _call(module: nn.Module, args: tuple[Any, ...], backward: bool) -> _Result:
    torch.manual_seed(0)
    if (
        torch.cuda.is_available()
    ):  # what a call reads beyond its tensors is NaN, and not by chance the right value
        del [[torch.full((64 << size,), math.nan, device="cuda") for size in range(10)] for _ in range(8)][:]
    with torch.set_grad_enabled(backward):
        outputs = module(*args)
        gradients: list[torch.Tensor | None] = []
        if backward:
            if sums := [leaf.sum() for leaf in pytree.tree_leaves(outputs) if leaf.requires_grad]:
                sum(sums).backward()
            leaves = [each for each in args if isinstance(each, torch.Tensor)]
            gradients = [each.grad for each in (*leaves, *module.parameters())]
    return _Result(outputs, args, copy.deepcopy(module.state_dict()), gradients)


def _difference(actual: _Result, expected: _Result) -> str:
    for what in ("outputs", "arguments", "state", "gradients"):
        ours, theirs = getattr(actual, what), getattr(expected, what)
        ours, form = pytree.tree_flatten(ours)
        theirs, wanted = pytree.tree_flatten(theirs)
        if form != wanted:
            return f"{what} have another structure"
        for mine, other in zip(ours, theirs, strict=True):
            if problem := _apart(mine, other):
                return f"{what}: {problem}"
    return ""


def _apart(actual: Any, expected: Any) -> str:
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        same = actual is expected or actual == expected or (actual != actual and expected != expected)
        return "" if same else f"{actual!r:.80} instead of {expected!r:.80}"
    forms = [(str(t.dtype), tuple(t.shape), t.stride() if t.numel() > 1 else ()) for t in (actual, expected)]
    if forms[0] != forms[1]:
        return f"{forms[0]} instead of {forms[1]}"
    close = actual == expected
    if actual.is_floating_point():
        close = torch.isclose(actual, expected, rtol=1e-2, atol=1e-30, equal_nan=True)
    if close.all():
        return ""
    first = (~close).nonzero()[0].tolist()
    return f"{actual[tuple(first)].item()} instead of {expected[tuple(first)].item()} at {first}"


def main(argv: Sequence[str]) -> int:
    """Prints what every proof shows; returns 1 if one shows something else than it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.dispatch", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", metavar="GLOB", default="*")
    options = parser.parse_args(argv)
    entries = [entry for entry in load(options.only) if entry.proof and entry.runs_on(options.device)]
    done = []
    for entry in entries:
        found = dispatch(entry, options.device)
        done.append(found.right)
        mark = "ok  " if found.right else "FAIL"
        print(f"{mark} {entry.name:<52} {found.differs or found.explained}"[:200], flush=True)
    print(f"{sum(done)} of {len(done)} proofs hold")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
