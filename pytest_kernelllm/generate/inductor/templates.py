"""Makes TorchInductor write matrix products and convolutions as Triton kernels, from its templates, without a GPU.

Inductor would compile each configuration of a template and time it. Here a rough model of the GPU orders them, and a variant
names which of them it takes. Where there is no template, the library call stays.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import torch

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.variants import Variant

_UNKNOWN = 2048
"""Stands for a size that is not fixed."""


@contextlib.contextmanager
def chosen_templates(gpu: Gpu, variant: Variant) -> Iterator[None]:
    """Makes Inductor take one configuration of each template inside the block, without timing any.

    Args:
        gpu: the GPU that the code is for.
        variant: its ``rank`` says which configuration. With ``blocks``, float32 products alone become kernels, with these blocks
            if the template has them.
    """
    from torch._inductor import select_algorithm

    blocks = variant.blocks

    def pick(choices: list[Any]) -> list[Any]:
        kernels = [c for c in choices if isinstance(c, select_algorithm.TritonTemplateCaller)]
        if blocks and choices[0].layout.dtype != torch.float32:
            return ([c for c in choices if c not in kernels] or choices)[:1]
        ranked = sorted(kernels, key=lambda choice: _cost(choice, gpu, bool(blocks))) or choices
        same = [choice for choice in kernels if _blocks(choice) == blocks]
        return (same or ranked[min(variant.rank, len(ranked) - 1) :])[:1]

    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    functions.append(pick)
    try:
        yield
    finally:
        functions.remove(pick)


def _cost(choice: Any, gpu: Gpu, on_tensor_cores: bool) -> tuple[bool, float]:
    """Estimates the time of a template with its configuration: whether it does not fit the GPU, and a relative time.

    Float32 is ``on_tensor_cores`` where it is taken apart.
    """
    options, (m, n, k) = _options(choice), _blocks(choice)
    warps, stages = options.get("num_warps", 4), options.get("num_stages", 1)
    layout = choice.layout
    sizes = [int(size) if getattr(size, "is_Integer", False) else _UNKNOWN for size in layout.size]
    if "KERNEL_H" in options:  # batch and positions against channels
        groups = options.get("GROUPS", 1)
        rows, columns = math.prod(sizes) // sizes[1], sizes[1] // groups
    else:
        groups, rows, columns = math.prod(sizes[:-2]), sizes[-2], sizes[-1]
    tiles = math.ceil(rows / m) * math.ceil(columns / n) * groups
    waves = math.ceil(tiles / gpu.multi_processor_count)
    full = layout.dtype == torch.float32 and not on_tensor_cores
    reuse = m * n / (m + n)
    speed = reuse / (reuse + (16 if full else 48))
    speed *= min(1.0, 0.5 + k / (32 if full else 128)) * (0.75 if stages == 1 else 1.0)
    registers = m * n / (32 * warps)
    speed *= min(1.0, (64 if full else 128) / registers) * min(1.0, registers / 16)
    shared = (m + n) * k * layout.dtype.itemsize * max(stages - 1, 1)
    return shared > gpu.shared_memory_per_block_optin, waves * m * n / speed


def _options(choice: Any) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", choice.description)}


def _blocks(choice: Any) -> tuple[int, ...]:
    options = _options(choice)
    return tuple(options.get(f"BLOCK_{axis}", 16) for axis in "MNK")
