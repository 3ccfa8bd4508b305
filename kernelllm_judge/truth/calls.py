"""Calls the original as it is, in float64, and at half precision. Used in the judge's process only."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.eight_bits import computable, narrowed
from kernelllm_judge.core.seeding import seed_torch
from kernelllm_judge.core.tf32 import CONVOLUTIONS, PRODUCTS
from kernelllm_judge.shared.leaves import flatten

Change = Callable[[torch.Tensor], torch.Tensor]

LOW_PRECISION = frozenset({torch.float32, torch.float16, torch.bfloat16})

SPARED = 1 << 20
"""Bytes that a tensor may hold beyond those it shows."""

_NOISE = 65_537
"""Random numbers drawn per tensor. Larger tensors repeat them; a prime period is out of step with
ordinary widths."""


class Float64Mode(DispatchMode):
    """Runs operations in float64 even where a module asks for a lower precision by name (``x.float()``)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation with every floating tensor and dtype argument as float64."""
        named = {name: _raised(value) for name, value in (kwargs or {}).items()}
        return func(*map(_raised, args), **named)


class ProductsInFloat32(DispatchMode):
    """Computes products on the CPU in float32, and rounds them to half precision if that is what they were asked for in.

    For some sizes, and with one thread, oneDNN 3 divides by zero in bfloat16, which ends the process.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation, with wider tensors if it is a product."""
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        dtypes = {tensor.dtype for tensor in tensors if tensor.device.type == "cpu"}
        product = func in PRODUCTS or func in CONVOLUTIONS
        if not product or not dtypes & {torch.float16, torch.bfloat16}:
            return func(*args, **(kwargs or {}))
        wide = (value.float() if isinstance(value, torch.Tensor) else value for value in args)
        return func(*wide, **(kwargs or {})).to(tensors[0].dtype)


class WithoutShortcuts(DispatchMode):
    """Computes what a function means where a shortcut of PyTorch's loses NaN or infinities.

    Distances by a product give NaN for infinities, and attention on the CPU gives 0 where all that a query scores is NaN.
    """

    def __init__(self) -> None:
        """Nothing was computed otherwise so far."""
        super().__init__()
        self.used = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        if func is torch.ops.aten._euclidean_dist.default:
            self.used = True
            return torch.ops.aten._cdist_forward.default(*args, 2.0, 2)
        if func is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            self.used = True
            query, key, value, dropout, causal = (*args, 0.0, False)[:5]
            options = kwargs or {}
            return torch.ops.aten._scaled_dot_product_attention_math.default(
                *(query, key, value, options.get("attn_mask"), dropout, causal),
                scale=options.get("scale"),
                enable_gqa=query.shape[1] != key.shape[1],
            )
        return func(*args, **(kwargs or {}))


_FUSED = {torch.ops.aten.mul.Tensor, torch.ops.aten.mul.Scalar, *PRODUCTS, *CONVOLUTIONS}
"""Operations that kernels fuse with the addition or subtraction of what they give, so that it is not rounded before…"""

_LARGE = 2.0**104
"""…which makes all the difference where rounding moves it by what no exponent can take: that of float32, and more."""


class Overflows(DispatchMode):
    """Notes whether an operation gives infinities or NaN, or a product so large that its rounding matters.

    In another order, as in a sum of products, others may come out.
    """

    def __init__(self) -> None:
        """None was seen so far."""
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation, or those that it is made of: a norm squares what it is given, where nobody sees it."""
        parts = None if func in _FUSED else decomposition_table.get(func)
        if parts is not None:
            with self:
                return parts(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if "empty" not in str(func):  # what is in new memory may be anything
            leaves = [each for each in tree_leaves(result) if _has_infinities(each)]
            most = _LARGE if func in _FUSED else math.inf
            self.seen = self.seen or not all(bool((computable(leaf).abs() < most).all()) for leaf in leaves)
        return result


def _has_infinities(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _raised(value: Any) -> Any:
    # Not by PyTorch's pytree, which takes longer than most operations of a deep network.
    if isinstance(value, torch.Tensor):
        # Constants made before the mode was entered still have low precision.
        return value.double() if value.dtype in LOW_PRECISION else value
    if isinstance(value, torch.dtype):
        return torch.float64 if value in LOW_PRECISION else value
    return type(value)(map(_raised, value)) if isinstance(value, list | tuple) else value


def copied(module: nn.Module, change: Change, change_buffer: Change | None = None) -> nn.Module:
    """Returns a copy of ``module`` with changed parameters and buffers; tied tensors stay tied.

    Args:
        change: maps a parameter to that of the copy; may return the same tensor.
        change_buffer: the same for buffers; None: ``change``.
    """
    changed: dict[int, Any] = {}
    for parameter in module.parameters():
        changed[id(parameter)] = nn.Parameter(change(parameter.detach()), parameter.requires_grad)
    for buffer in module.buffers():
        changed[id(buffer)] = (change_buffer or change)(buffer.detach())
    for part in module.modules():
        # Each has a dozen of these, for hooks, and most of the time of copying goes into them.
        empty = (held for held in vars(part).values() if type(held) is OrderedDict and not held)
        changed.update((id(held), OrderedDict()) for held in empty)
    return copy.deepcopy(module, changed)


class Updating(nn.Module):
    """Gives a module's buffers after a call, behind its outputs."""

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        """``names`` are those of the buffers, dotted."""
        super().__init__()
        self.module = module
        self.names = tuple(names)

    def forward(self, **arguments: Any) -> list[torch.Tensor]:
        """Calls the module, and returns leaves and buffers in a list."""
        output = self.module(**arguments)
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        return [*flatten(output)[1], *(buffers[name] for name in self.names)]


def holds_closures(module: nn.Module) -> bool:
    """Whether some part has a function as an attribute, or in one, that may hold parts: its copies would still hold those."""
    return any(
        isinstance(leaf, FunctionType) and leaf.__closure__
        for part in module.modules()
        for leaf in tree_leaves(vars(part))
    )


def perturb(module: nn.Module, seed: int) -> nn.Module:
    """Perturbs parameters and buffers in place, so that a kernel that ignores them is wrong.

    Values keep their meaning: non-negative tensors (variances, frequencies) stay so, integers stay as
    they are.
    """
    tensors = [*module.parameters(), *module.buffers()]
    generator = torch.Generator(tensors[0].device if tensors else "cpu").manual_seed(seed)
    for tensor in tensors:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        value = computable(tensor.detach())
        if bool((value == 0).all()):
            value = _with_noise(value, torch.randn, generator, lambda part, noise: 0.3 * noise)
        elif bool((value >= 0).all()):
            value = _with_noise(value, torch.rand, generator, lambda part, noise: part * (0.6 + 0.8 * noise))
        else:
            size = 0.1 * value.float().std(unbiased=False).to(value)
            value = _with_noise(
                value, torch.randn, generator, lambda part, noise, size=size: part + size * noise
            )
        tensor.data = narrowed(value, tensor.dtype)
    return module


def renumber(module: nn.Module, names: Sequence[str], seed: int) -> None:
    """Changes whole numbers among a module's attributes, in place, so that a kernel is wrong if results depend on them."""
    for name in names:
        owner, _, attribute = name.rpartition(".")
        part = module.get_submodule(owner)
        setattr(part, attribute, getattr(part, attribute) + 1 + seed % 5)


def count_on(module: nn.Module, names: Collection[str], seed: int) -> None:
    """Raises the integer buffers with these names a little, in place, so that a kernel that sets them to 1 is wrong."""
    for name, buffer in module.named_buffers():
        if name in names and not buffer.is_floating_point() and buffer.dtype != torch.bool:
            buffer.data = buffer + 1 + seed % 5


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous copy in float64; integers keep their dtype."""
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)


def perturbation(step: float, seed: int, device: torch.device, *, visible: bool = False) -> Change:
    """Returns a function that converts tensors to float64 and perturbs elements by a relative ``step``.

    Its numbers are drawn on ``device``. Tensors that are float64 already are
    perturbed by as much less as their precision is higher. If it is to be ``visible``, the others are by a last digit at least.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def perturb(tensor: torch.Tensor) -> torch.Tensor:
        wide = to_float64(tensor)
        if not tensor.is_floating_point() or not tensor.numel():
            return wide
        count = min(wide.numel(), _NOISE)
        drawn = 2 * torch.rand(count, generator=generator, device=device, dtype=torch.float64) - 1
        # Between half and one and a half steps, up or down: no two perturbations cancel each other exactly.
        finer = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        size = step * finer if tensor.dtype == torch.float64 else step
        if visible:
            size = max(size, torch.finfo(tensor.dtype).eps)
        factors = 1 + size * (drawn + 0.5 * drawn.sign())
        flat = wide.view(-1)
        whole = flat.numel() // count * count
        flat[:whole].view(-1, count).mul_(factors)
        flat[whole:].mul_(factors[: flat.numel() - whole])
        return wide

    return perturb


def call_original(module: nn.Module, arguments: dict[str, Any], seed: int = 0) -> Any:
    """Returns the module's outputs with PyTorch seeded by ``seed``. Module and arguments stay unchanged."""
    fresh = copied(module, lambda tensor: tensor, torch.clone)
    inputs = mapped(arguments, torch.clone)
    gpus = [
        t.device for t in inputs.values() if isinstance(t, torch.Tensor) and accelerator.is_gpu(t.device)
    ][:1]
    with torch.no_grad(), torch.random.fork_rng(devices=gpus, device_type=accelerator.gpu().type):
        seed_torch(seed)
        return fresh(**nested(inputs))


def run_original(module: nn.Module, arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Returns the structure and leaves of ``call_original``'s outputs."""
    structure, leaves = flatten(call_original(module, arguments))
    return structure, list(map(compact, leaves))


def compact(leaf: Any) -> Any:
    """Returns a tensor that holds no more memory than it shows: that of a loss is the errors of all elements."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or not leaf.is_contiguous():
        return leaf
    return leaf.clone() if leaf.untyped_storage().nbytes() > 2 * leaf.nbytes + SPARED else leaf


def mapped(arguments: dict[str, Any], change: Change) -> dict[str, Any]:
    """Returns the arguments with ``change`` applied to the tensors."""
    return {k: change(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def run_in_float64(module: nn.Module, arguments: dict[str, Any], change: Change = to_float64) -> list[Any]:
    """Returns the leaves of the outputs, computed in float64.

    Args:
        change: converts an argument to float64.
    """
    exact = copied(module, lambda tensor: tensor, torch.clone)
    inputs = mapped(arguments, change)
    with torch.no_grad(), Float64Mode():
        return list(map(compact, flatten(exact(**nested(inputs)))[1]))


def run_in_half(module: nn.Module, arguments: dict[str, Any]) -> list[Any] | None:
    """Returns the outputs' leaves in bfloat16; None where nothing is float32, or the module fails at it."""
    tensors = [*module.parameters(), *module.buffers(), *arguments.values()]
    if not any(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in tensors):
        return None

    def halve(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor.clone()

    half = copied(module, halve)
    halved = mapped(arguments, halve)
    try:
        with torch.no_grad(), ProductsInFloat32():
            return list(map(compact, flatten(half(**nested(halved)))[1]))
    except Exception:  # e.g. an operation without a half-precision version; user code may raise anything
        return None


def _with_noise(
    value: torch.Tensor,
    kind: Callable[..., torch.Tensor],
    generator: torch.Generator,
    mix: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Returns a tensor mixed with random numbers element by element, in chunks: copies of large weights need much memory."""
    count = value.numel()
    drawn = kind(min(count, _NOISE), generator=generator, device=value.device).to(value.dtype)
    if not value.is_contiguous():
        return mix(value, drawn.repeat(-(-count // _NOISE))[:count].reshape(value.shape))
    mixed = torch.empty_like(value)
    noise = drawn.repeat(min(-(-count // _NOISE), 1 << 8))
    pairs = zip(mixed.view(-1).split(len(noise)), value.view(-1).split(len(noise)), strict=True)
    for target, part in pairs:
        target.copy_(mix(part, noise[: len(part)]))
    return mixed
