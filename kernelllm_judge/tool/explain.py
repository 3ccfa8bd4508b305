"""Says in plain words what a verdict means, and what to do."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType

from kernelllm_judge.core.records import Verdict
from kernelllm_judge.rules.catalog import RULES

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "static check": "Remove what the reason names: a kernel module needs torch, triton, kernels and `forward` only.",
        "supports": "Correct SUPPORTS, or leave it out: it must lie within what the reference's inputs, dtypes and attributes cover.",
        "compile": "Read the compiler's error: block sizes must be powers of two and constexpr, and types of both branches must agree.",
        "load": "Make the file importable by itself, with torch and triton only.",
        "run": "Read the error. Check grid, argument order, and shapes; a kernel that hangs or takes minutes is rejected here, too.",
        "memory": "Mask every load and store with the true extent, write what you read later, and use atomics where programs meet.",
        "types": "Return the original's structure: the same number of outputs, dtypes, shapes and strides, as plain tensors.",
        "launches": "Launch a Triton kernel of your own in every call, with no fallback to torch.",
        "state kept": "Compute everything in the call; keep no cache on `self`, in globals or in defaults.",
        "inputs kept": "Write to new tensors, never to inputs or parameters that the original leaves alone.",
        "buffers updated": "Update the buffers that the original updates, such as running statistics, by the same formula.",
        "guards": "Check offsets and masks of stores: one lies before or after its tensor.",
        "values": "The arithmetic is wrong for ordinary inputs: compare it with the reference line by line, at the place in the reason.",
        "fixed inputs": "Read the input instead of assuming its usual values.",
        "integer inputs": "Handle repeated, negative, large and special integers, such as a padding index, as the original does.",
        "weights": "Use the module's own parameters, and expect negative, zero, small, large and NaN ones.",
        "attributes": "Read the attribute from `self` instead of writing its value into the kernel.",
        "sizes": "Mask the last block, and derive block sizes and strides from the shapes; try primes and the smallest sizes.",
        "stress": "Make it numerically stable: accumulate in float32, subtract the maximum before exp, and avoid cancellation.",
        "nonfinite": "Let NaN and infinity through as the original does; tl.maximum and tl.max need propagate_nan.",
        "gradients": "Correct the backward pass: every input and parameter needs its gradient, for any strides of the incoming ones.",
        "aliasing": "Allocate outputs of your own, unless the original returns views of its inputs.",
        "memory held": "Allocate outputs of their own size instead of returning views of a larger buffer.",
        "torch's share": "Move the work that the reason names from torch into your kernels.",
        "fresh address": "Do not remember results by address or object.",
        "repeat": "Do not let one program of a grid depend on another: use atomics, or a second kernel.",
        "decoy": "Let the kernels compute the outputs: without them, the outputs must be wrong.",
        "alignment": "Do not assume that tensors start at multiples of 16 bytes.",
        "surroundings": "Depend on arguments only: no environment, streams, threads, random state or settings.",
        "decisions": "Remove the branch that no probe takes, or make its condition one that sizes, dtypes or values decide.",
        "operations": "Remove the operation that changes nothing, or correct it: no probe shows a difference without it.",
        "device time": "Let your own kernels take most of the GPU's time, not torch operations around them.",
        "recheck": "Compute the same in timed calls as in others.",
        "clocks": "Launch on the current stream, and leave events and synchronisation alone.",
        "roofline": "Do all the work in each call: it was faster than memory allows.",
        "addresses": "Correct the offsets: at some size an access lies outside, two programs write one element, or one is not written.",
        "speed": "It is right, but too slow: fuse more, read memory once, choose larger blocks; or lower the required speedup.",
    }
)
"""What to do about each rule that was broken."""

NEVER = "Change the kernel, never the reference, the tolerance or the check."


def explain(verdict: Verdict) -> str:
    """Returns a verdict in plain words: what was decided, what its rule says and protects from, and what to do."""
    lines = [f"{verdict.in_words()}."]
    rule = next((each for each in RULES if each.name == verdict.rule), None)
    if rule is not None:
        protects = (inspect.getdoc(type(rule)) or "").partition("\n")[0]
        lines += [
            f"It broke the rule `{rule.name}`: {rule.says}.",
            f"What the rule is for: {protects}",
            f"What to do: {ADVICE[rule.name]} {NEVER}",
        ]
    elif verdict.verdict == "rejected":
        lines.append(
            f"What to do: the answer could not be made into a kernel module; correct its form. {NEVER}"
        )
    elif verdict.verdict == "inconclusive":
        needs = f"It needs {verdict.lacks}." if verdict.lacks else "Do what the reason asks, and judge again."
        lines.append(f"Nothing was decided: the kernel is not accepted, and no rule is broken. {needs}")
    else:
        where = (
            "on a GPU"
            if verdict.environment.on_gpu
            else "in Triton's interpreter; only a GPU tells its speed"
        )
        lines.append(f"It was judged {where}.")
        lines += [f"{verdict.sizes_asked}."] if verdict.sizes_asked else []
        lines += [f"Addresses: {verdict.addresses.in_words()}."] if verdict.addresses else []
    for check in verdict.checks:
        if not check.passed and check.measured is not None:
            lines.append(f"{check.name}: measured {check.measured}, allowed {check.allowed}.")
    return "\n".join(lines)
