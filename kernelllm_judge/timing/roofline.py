"""Measures the roofline of the current GPU, and what a call must at least move and compute."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.arguments import nested
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth.prepared import PreparedProbe

PREFIX = "_scaled_dot_product_"

Formula = Callable[..., int]


def attention_formulas() -> dict[Any, Formula]:
    """Returns a formula for each operation of fused attention in this PyTorch, for ``FlopCounterMode``."""
    return {packet: _formula(packet) for packet in _packets()}


def _packets() -> Iterator[Any]:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if name.startswith(PREFIX) and {"query", "key", "value", "is_causal"} <= set(_names(packet)):
            yield packet


def _names(packet: Any) -> list[str]:
    return [argument.name for argument in packet.default._schema.arguments]


def _formula(packet: Any) -> Formula:
    names, backward = _names(packet), packet.__name__.endswith("_backward")

    def count(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        given = dict(zip(names, args, strict=False)) | kwargs
        query, key, value = (given[name].shape for name in ("query", "key", "value"))
        rows, columns = query[-2], key[-2]
        pairs = _below_the_diagonal(rows, columns) if given.get("is_causal") else rows * columns
        # One product with the keys and one with the values; backwards two with each.
        widths = (query[-1] + value[-1]) * (2 if backward else 1)
        heads = query[:-2].numel()
        return int(2 * heads * pairs * widths)

    count._get_raw = True  # type: ignore[attr-defined]  # tensors, not their shapes
    return count


def _below_the_diagonal(rows: int, columns: int) -> int:
    """How many pairs a causal mask keeps, with the diagonal, from the first row and column on."""
    square = min(rows, columns)
    return square * (square + 1) // 2 + (rows - square) * columns


CONVOLUTIONS = "float32 convolutions"
PRODUCTS = "float32 products"

SIDE = 4096
"""Rows and columns of the matrices that are multiplied to measure how fast the GPU computes."""

DIFFERENTIABLE_BYTES = 1 << 31
"""Bytes; larger probes are not differentiated to find out which inputs a call must read."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one call."""

    total: int
    convolutions: int
    """FLOPs of these that are in convolutions."""


NO_FLOPS = Flops(0, 0)


@dataclass(frozen=True)
class Roofline:
    """Measured ceilings of one GPU."""

    bytes_per_us: float
    flops_per_us: Mapping[str, float]
    """Of matrix products by dtype; under ``CONVOLUTIONS`` of float32 convolutions, which use TF32 by default, and under
    ``PRODUCTS`` of float32 products as three of TF32, which are as exact as the library's."""
    cache_bytes: int
    """Size of L2: writes up to this size need not reach memory before a call ends."""

    def microseconds(self, moved: int, flops: Flops, dtype: str) -> float:
        """Returns the µs that moving these bytes and computing these FLOPs takes at the ceilings."""
        rate = self.flops_per_us.get(dtype, self.flops_per_us["float32"])
        convolutions = self.flops_per_us.get(CONVOLUTIONS, rate) if dtype == "float32" else rate
        products = self.flops_per_us.get(PRODUCTS, rate) if dtype == "float32" else rate
        computing = (flops.total - flops.convolutions) / products + flops.convolutions / convolutions
        return max(moved / self.bytes_per_us, computing)

    def least(self, read: int, written: int, flops: int) -> float:
        """Returns the µs that a call needs at least, whatever precision it computes in."""
        moved = read + max(written - self.cache_bytes, 0)
        return max(moved / self.bytes_per_us, flops / max(self.flops_per_us.values()))


def measure_roofline(clock: GpuClock) -> Roofline:
    """Measures the current GPU's memory bandwidth and matmul throughput, in some 100 ms after ``warm_up_roofline``."""
    source = torch.empty(1 << 28, dtype=torch.float32, device=accelerator.gpu()).normal_()
    target = torch.empty_like(source)
    copied = clock.many([functools.partial(target.copy_, source)], 8, 1)[1]
    rates = {}
    for name, product in _products():
        clock.many([product], 3)
        rates[name] = 2 * SIDE**3 / clock.many([product], 10)[1][0]
    # As fast as a product in TF32, if convolutions may use it.
    rates[CONVOLUTIONS] = max(rates["float32"], rates[CONVOLUTIONS])
    rates[PRODUCTS] = max(rates["float32"], rates[CONVOLUTIONS] / 3)
    moved = 2 * source.numel() * source.itemsize / statistics.median(copied)
    return Roofline(moved, rates, int(accelerator.properties().L2_cache_size))


def _products() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Yields the name and a call of a product in each dtype, and of a convolution that is one."""
    for name in ("float32", "float16", "bfloat16"):
        a = torch.randn(SIDE, SIDE, device=accelerator.gpu(), dtype=getattr(torch, name))
        yield name, functools.partial(torch.matmul, a, a)
    pixels = torch.randn(1, SIDE, 64, SIDE // 64, device=accelerator.gpu()).to(
        memory_format=torch.channels_last
    )
    weights = torch.randn(SIDE, SIDE, 1, 1, device=accelerator.gpu()).to(memory_format=torch.channels_last)
    yield CONVOLUTIONS, functools.partial(torch.nn.functional.conv2d, pixels, weights)


def count_flops(call: Callable[[], Any]) -> Flops:
    """Runs a call and counts its operations."""
    with FlopCounterMode(display=False, custom_mapping=attention_formulas()) as counter:
        call()
    counts = counter.get_flop_counts().get("Global", {})
    convolutions = sum(int(count) for operation, count in counts.items() if "convolution" in str(operation))
    return Flops(int(counter.get_total_flops()), convolutions)


def needed_bytes(prepared: PreparedProbe) -> tuple[int, int]:
    """Returns the bytes that a call must read, and the bytes that it must write.

    To be read are the elements of floating inputs and parameters with a non-zero gradient of a random
    projection of the outputs. This is a lower bound: elements without a gradient may matter, too; rows of
    an embedding that no index selects are left out.
    """
    written = sum(leaf.nbytes for leaf in prepared.expected.original)
    if prepared.bytes > DIFFERENTIABLE_BYTES:
        return 0, written
    arguments = {
        name: value.detach().requires_grad_()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in prepared.arguments.items()
    }
    sources = [v for v in arguments.values() if isinstance(v, torch.Tensor) and v.requires_grad]
    module = prepared.callable_module()
    sources += [p for p in module.parameters() if p.requires_grad]
    try:
        with torch.enable_grad():
            _, outputs = flatten(module(**nested(arguments)))
            leaves = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
            if not leaves or not sources:
                return 0, written
            parts = [(leaf * torch.randn_like(leaf)).sum().double() for leaf in leaves]
            gradients = torch.autograd.grad(torch.stack(parts).sum(), sources, allow_unused=True)
    except RuntimeError:
        # It changes an input in place, or has no derivative: nothing is known about its reads.
        return 0, written
    read = sum(
        int(gradient.count_nonzero()) * gradient.itemsize for gradient in gradients if gradient is not None
    )
    return read, written
