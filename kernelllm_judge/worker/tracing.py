"""Runs ``forward`` on tensors without values or memory, and records its launches, at any sizes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves
from triton._C.libtriton import ir, passes
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.worker.absent_gpu import WarmKernel

UNWRITTEN = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
"""Functions of torch that return memory in which nothing is written yet."""

HARMLESS = frozenset(("requires_grad_", "detach_", "retain_grad", "as_strided_", "resolve_neg_"))
"""Functions with the name of one that changes its tensor, which write nothing."""

READING = frozenset(("__index__", "__int__", "__invert__", "__iter__"))

VARIANTS = 64
"""Configurations of an autotuned kernel that are followed, at most."""


@dataclass
class Run:
    """What one call launches."""

    launches: list[dict[str, Any]] = field(default_factory=list)
    storages: dict[int, int] = field(default_factory=dict)
    """Numbers of storages by their addresses as objects."""
    bytes: list[int] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    """Keeps what has such an address."""
    unwritten: set[int] = field(default_factory=set)
    """Storages in which torch has written nothing."""
    variants: int = 1
    """How many configurations there are to follow."""
    more: bool = False
    """Whether there are more than are followed."""

    def storage(self, tensor: torch.Tensor) -> int:
        """Returns the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = len(self.bytes)
            self.bytes.append(storage.nbytes())
            self.kept.append(storage)
        return self.storages[storage._cdata]

    def place(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Describes where a tensor begins."""
        size = tensor.element_size()
        return {"storage": self.storage(tensor), "offset": tensor.storage_offset() * size, "size": size}


class WithoutValues(TorchFunctionMode):
    """A context in which tensors have no memory, and say that they lie on the device where they would."""

    def __init__(self, run: Run, device: torch.device) -> None:
        """Notes in ``run`` what is written."""
        super().__init__()
        self.run, self.device = run, device

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for every function of torch."""
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(function.__self__, "__name__", "")
            answers = {"device": self.device, "is_cuda": self.device.type == "cuda", "is_meta": False}
            if name in answers:
                return answers[name]
        if name == "get_device":
            return self.device.index or 0
        if function in (torch.Tensor.cuda, torch.Tensor.cpu):
            return args[0]
        if function is torch.Tensor.to:
            args = (args[0], *(each for each in args[1:] if not isinstance(each, str | torch.device)))
            kwargs.pop("device", None)
            if len(args) == 1 and not kwargs:
                return args[0]
        if "device" in kwargs or function in _device_constructors():
            kwargs["device"] = "meta"
        kwargs.pop("pin_memory", None)
        result = function(*args, **kwargs)
        if name in UNWRITTEN and isinstance(result, torch.Tensor):
            self.run.unwritten.add(self.run.storage(result))
        written = [kwargs.get("out")]
        if _writes(name) or kwargs.get("inplace") is True:
            written += args[:1]
        for tensor in tree_leaves(written):
            if isinstance(tensor, torch.Tensor):
                self.run.unwritten.discard(self.run.storage(tensor))
        return result


def _writes(name: str) -> bool:
    """Whether a function writes to its first argument, by its name: ``fill_``, ``__setitem__``, ``__iadd__``."""
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in READING)
    return name.endswith("_") and name not in HARMLESS


class Tracer:
    """Records the launches of a worker's candidate, and keeps its kernels' intermediate code."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.kernels: dict[Any, str] = {}
        """Names of compiled kernels by what they were compiled for."""
        self.texts: dict[str, dict[str, str]] = {}
        """Those that the judge has not got yet."""

    def trace(
        self,
        call: Callable[[], Any],
        device: torch.device,
        variant: int,
        sources: Mapping[str, torch.Tensor] | None,
    ) -> dict[str, Any]:
        """Calls ``call`` and describes its launches, and where its outputs lie.

        Args:
            call: calls ``forward``.
            device: where tensors say that they are.
            variant: which configurations of autotuned kernels are followed.
            sources: inputs and parameters whose gradients are computed as well; None: none.
        """
        run = Run()
        for source in (sources or {}).values():
            source.requires_grad_(source.dtype.is_floating_point)
        with self._recording(run, variant), WithoutValues(run, device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.set_grad_enabled(sources is not None):
                leaves = [leaf for leaf in flatten(call())[1] if isinstance(leaf, torch.Tensor)]
            outputs = {f"output {i}": leaf for i, leaf in enumerate(leaves)}
            roots = [leaf for leaf in leaves if leaf.requires_grad]
            if sources and roots:
                wanted = {name: each for name, each in sources.items() if each.requires_grad}
                incoming = [torch.ones_like(root) for root in roots]
                found = torch.autograd.grad(roots, list(wanted.values()), incoming, allow_unused=True)
                outputs |= {
                    f"the gradient of `{n}`": g for n, g in zip(wanted, found, strict=True) if g is not None
                }
        places = [
            {"name": name, **run.place(each), "shape": list(each.shape), "strides": list(each.stride())}
            for name, each in outputs.items()
        ]
        return {
            "launches": run.launches,
            "outputs": places,
            "bytes": run.bytes,
            "unwritten": sorted(run.unwritten),
            "variants": run.variants,
            "more": run.more,
        }

    @contextlib.contextmanager
    def _recording(self, run: Run, variant: int) -> Iterator[None]:
        """A context in which a kernel is recorded instead of launched."""
        launch, tune = JITFunction.run, Autotuner.run

        def record(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            if warmup:
                return WarmKernel(kernel)
            run.launches.append(self._launch(run, kernel, args, grid, kwargs))
            return None

        def choose(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            named = dict(zip(tuner.arg_names, args, strict=False))
            every = tuner.configs
            if tuner.early_config_prune:
                every = tuner.early_config_prune(every, named, **kwargs) or every[:1]
            configs = list({repr(sorted(each.kwargs.items())): each for each in every}.values())
            run.variants = max(run.variants, min(len(configs), VARIANTS))
            run.more |= len(configs) > VARIANTS
            config = configs[variant % len(configs)]
            current = {**kwargs, **config.all_kwargs()}
            if config.pre_hook is not None:
                config.pre_hook({**named, **current})
            return tuner.fn.run(*args, **current)

        JITFunction.run, Autotuner.run = record, choose
        try:
            yield
        finally:
            JITFunction.run, Autotuner.run = launch, tune

    def _launch(self, run: Run, kernel: Any, args: Any, grid: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        device = driver.active.get_current_device()
        _, _, target, backend, bind = kernel.device_caches[device]
        kwargs = {"debug": False, "instrumentation_mode": "", **kwargs}
        bound, specialization, options = bind(*args, **kwargs)
        options, signature, constants, _ = kernel._pack_args(backend, kwargs, bound, specialization, options)
        if callable(grid):
            grid = grid(bound)
        # Triton compiles an argument that is 1 as a constant, which makes no other program.
        for number, (parameter, value) in enumerate(zip(kernel.params, bound.values(), strict=True)):
            if signature[parameter.name] == "constexpr" and not parameter.is_constexpr and type(value) is int:
                signature[parameter.name] = "i32"
                constants.pop((number,), None)
        key = (id(kernel), repr(signature), repr(sorted(constants.items())))
        if key not in self.kernels:
            name = self.kernels[key] = f"{kernel.fn.__name__}#{len(self.kernels)}"
            text = _code(kernel, signature, constants, target, backend, options)
            self.texts[name] = {"name": kernel.fn.__name__, "text": text}
        given: list[Any] = []
        for kind, value in zip(signature.values(), bound.values(), strict=True):
            _describe(run, kind, value, given)
        return {
            "kernel": self.kernels[key],
            "grid": [int(each) for each in (*grid, 1, 1)[:3]],
            "arguments": given,
        }


def _describe(run: Run, kind: Any, value: Any, given: list[Any]) -> None:
    """Adds what the compiled kernel gets for an argument."""
    if kind == "constexpr":
        return
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(kind, tuple):
        for part, inner in zip(kind, value, strict=True):
            _describe(run, part, inner, given)
    elif isinstance(value, torch.Tensor):
        given.append(run.place(value))
    elif isinstance(getattr(value, "base", None), torch.Tensor) and hasattr(value, "block_shape"):
        sizes, strides = [list(map(int, each)) for each in (value.shape, value.strides)]
        given += [run.place(value.base), *sizes, *strides, 0, 0, *sizes, *strides]
    elif isinstance(getattr(value, "base", None), torch.Tensor):  # triton.reinterpret
        given.append(run.place(value.base))
    else:
        given.append(int(value) if isinstance(value, bool | int) else None)


def _code(kernel: Any, signature: Any, constants: Any, target: Any, backend: Any, options: Any) -> str:
    """Returns a kernel's intermediate code, with functions inlined and descriptors as pointers; empty where Triton refuses it."""
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = kernel.ASTSource(kernel, signature, constants, {})
    helpers = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, *helpers, context)
    manager = ir.pass_manager(context)
    passes.common.add_inliner(manager)
    passes.ttir.add_rewrite_tensor_pointer(manager)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    for add in (passes.common.add_canonicalizer, passes.common.add_cse, passes.common.add_symbol_dce):
        add(manager)
    manager.run(module, "addresses")
    return str(module)
