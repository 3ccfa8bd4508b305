"""``optimize_model``: a verified kernel in the place of every ``forward`` that has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.core.records import KernelRecord
from pytest_kernelllm.optimize.environment import environment_of
from pytest_kernelllm.optimize.graphs import graphing
from pytest_kernelllm.optimize.kernel_index import NoKernel, Shelf
from pytest_kernelllm.optimize.report import ModuleReport, OptimizeReport
from pytest_kernelllm.runtime import DISPATCHER
from pytest_kernelllm.runtime.instance import OWN_CLASS, Swap, TextKernel, dispatching, misfit, swap
from pytest_kernelllm.runtime.kernel import Unavailable
from pytest_kernelllm.store import Store


def optimize_model(
    model: nn.Module, *, store: Store | Path | str | None = None, cuda_graphs: bool = False
) -> OptimizeReport:
    """Let every module of a model run the verified kernel of its class, where the store has one for this environment.

    A replaced module runs its kernel for calls inside the domain it was verified on and its own ``forward`` for all
    others, with at most one warning a reason. ``KERNELLLM_DISABLE`` and ``KERNELLLM_STRICT`` count as for adopted
    classes. Parameters, hooks, attributes, ``state_dict`` and the classes themselves are untouched; copies run the
    kernels too, pickles hold the original classes.

    The store's kernels are code that runs in this process: name a store that you trust as you trust your source.

    Args:
        model: any ``nn.Module``, of your own or somebody else's classes, on any device.
        store: a store or its folder; by default that of the project in the current folder.
        cuda_graphs: also record the whole model's ``forward`` as CUDA graphs, one for each form of call without
            gradients, replayed when it comes again.

    Returns:
        What was replaced, what was not and why. ``restore()`` undoes it, as does the end of a ``with`` block.

    Raises:
        TypeError: ``model`` is no ``nn.Module``.
        FileNotFoundError: there is no such store.
        ConfigError: the project's settings are wrong.
        RuntimeError: ``cuda_graphs`` without a GPU.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"optimize_model takes an nn.Module, not a {type(model).__qualname__}.")
    if cuda_graphs and not torch.cuda.is_available():
        raise RuntimeError(
            "optimize_model(cuda_graphs=True) needs a CUDA GPU, and torch finds none; leave it out."
        )
    opened = _store(store)
    before = type(model)
    bench = _Bench(Shelf(opened, environment_of(model)))
    modules = tuple(bench.place(path, module) for path, module in list(model.named_modules()))
    if cuda_graphs:
        graphed = replace(swap("", model, graphing(model)), before=before)
        bench.swaps = [graphed, *(swap for swap in bench.swaps if swap.module is not model)]
    return OptimizeReport(modules, opened.path, tuple(bench.shelf.problems), cuda_graphs, tuple(bench.swaps))


def _store(given: Store | Path | str | None) -> Store:
    if isinstance(given, Store):
        return given
    if given is None:
        return Store(Path.cwd(), load_settings(Path.cwd()).store)
    folder = Path(given).absolute()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no store {folder}; `pytest --kernelllm` makes one, as .kernelllm in the project's folder."
        )
    return Store(folder.parent, folder.name)


class _Bench:
    """Places kernels one module after the other; all instances of a class share what its kernel needs."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.swaps: list[Swap] = []
        self._kernels: dict[tuple[type[nn.Module], str], TextKernel] = {}
        self._classes: dict[TextKernel, type[nn.Module]] = {}

    def place(self, path: str, module: nn.Module) -> ModuleReport:
        """Swap the module's class, if there is a kernel for it."""
        cls = type(module)
        try:
            record, kernel = self._choose(module)
            if kernel not in self._classes:
                self._classes[kernel] = dispatching(cls, kernel)
        except NoKernel as none:
            return ModuleReport(path, cls.__qualname__, reason=str(none))
        except TypeError as error:  # the class's
            return ModuleReport(path, cls.__qualname__, reason=str(error).rstrip("."))
        self.swaps.append(swap(path, module, self._classes[kernel]))
        gpu = record.verdict.environment.gpu
        return ModuleReport(path, cls.__qualname__, kernel.dotted, gain=record.verdict.speedup, gpu=gpu)

    def _choose(self, module: nn.Module) -> tuple[KernelRecord, TextKernel]:
        """The fastest kernel that fits the module.

        Raises:
            NoKernel: there is none; the text says why.
        """
        cls = type(module)
        if hasattr(cls, OWN_CLASS):
            raise NoKernel("already optimized")
        if adopted := getattr(cls.forward, DISPATCHER, None):
            raise NoKernel(f"left alone: it has adopted {adopted.kernel.dotted}")
        records = self.shelf.records(cls)
        if "forward" in vars(module):
            raise NoKernel("this instance has a forward of its own")
        told: list[str] = []
        for record in records:
            kernel = self._kernel(cls, record)
            try:
                reasons = [misfit(domain, module) for domain in kernel.domains]
            except Unavailable as unavailable:
                raise NoKernel(str(unavailable)) from None
            if None in reasons:
                return record, kernel
            told += filter(None, reasons)
        raise NoKernel(told[0] if told else "its kernel supports no domain")

    def _kernel(self, cls: type[nn.Module], record: KernelRecord) -> TextKernel:
        key = (cls, record.verdict.kernel_hash)
        if key not in self._kernels:
            self._kernels[key] = TextKernel(cls.__qualname__, key[1], record.candidate.source)
        return self._kernels[key]
