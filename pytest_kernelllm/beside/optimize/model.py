"""``optimize_model``: replaces every ``forward`` for which the store has a verified kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from kernelllm_judge.core.records import KernelRecord, Ratio
from kernelllm_runtime.instance import Swap, TextKernel, dispatching, swap
from kernelllm_runtime.placing import fitting, unplaceable
from pytest_kernelllm.beside.optimize.called import reasons
from pytest_kernelllm.beside.optimize.environment import environment_of
from pytest_kernelllm.beside.optimize.kernel_index import KernelIndex, NoKernel
from pytest_kernelllm.beside.optimize.report import ModuleReport, OptimizeReport
from pytest_kernelllm.beside.optimize.whole import AS_IT_IS, COMPILED, gains, pays
from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.store import Store


def optimize_model(
    model: nn.Module,
    *,
    store: Store | Path | str | None = None,
    example: Callable[[], object] | None = None,
    compiled: bool | str = False,
) -> OptimizeReport:
    """Makes every module of a model run the verified kernel of its class, if the store has one for this environment.

    A replaced module runs its kernel for calls inside the verified domain and its own ``forward`` for all others,
    with at most one warning per reason. ``KERNELLLM_DISABLE`` and ``KERNELLLM_STRICT`` apply as for adopted classes.
    Parameters, hooks, attributes, ``state_dict`` and the classes themselves are not changed; copies run the kernels as
    well, and pickles contain the original classes.

    The store's kernels are code that runs in this process: use only a store that you trust like your own source.

    Args:
        model: any ``nn.Module`` of any classes, on any device.
        store: a store or its folder; by default that of the project in the current folder.
        example: calls the model as it will be called, such as ``lambda: model(tokens)``. Then kernels are placed only where
            the example as a whole is faster with them: all of them, or else one class after the other. It runs many times,
            with and without them, and without gradients; what it raises is raised here, with the classes of all modules as
            they were.
        compiled: whether the model will run under ``torch.compile``, or in which of its modes: the example is then timed with
            the model compiled, and must be 1.02 times as fast with kernels. ``torch.compile`` sees them with
            ``KERNELLLM_COMPILE=1`` only.

    Returns:
        The modules that were replaced, and the reason for each other one. ``restore()`` or the end of a ``with``
        block undoes the replacement.

    Raises:
        TypeError: ``model`` is not an ``nn.Module``, or ``example`` no callable.
        FileNotFoundError: the store does not exist.
        ConfigError: the project's settings are invalid.
        ValueError: ``compiled`` is no mode of ``torch.compile``.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"optimize_model takes an nn.Module, not a {type(model).__qualname__}.")
    if example is not None and not callable(example):
        raise TypeError(
            f"optimize_model takes a callable as example, such as `lambda: model(tokens)`, not a {type(example).__qualname__}."
        )
    inductor = _inductor_options(compiled)
    opened = open_store(store)
    here = environment_of(model)
    replacement = Replacement(KernelIndex(opened, here))
    modules = tuple(replacement.replace(path, module) for path, module in list(model.named_modules()))
    try:
        if example is not None:
            why = reasons(replacement.swaps, example, compiled=inductor is not None)
            tried = [each for each in replacement.swaps if why.get(each.path, "") is None]
            found = {path: each for path, each in why.items() if each} | gains(
                tried, model, example, inductor
            )
            least = (AS_IT_IS if inductor is None else COMPILED).least
            modules = tuple(replacement.keep_if_faster(each, found, least) for each in modules)
    except BaseException:  # the example may raise anything, and nobody could restore the model
        for each in replacement.swaps:
            each.undo()
        raise
    problems = tuple(replacement.index.problems)
    return OptimizeReport(modules, opened.path, problems, _swaps=tuple(replacement.swaps))


def _inductor_options(compiled: bool | str) -> dict[str, Any] | None:
    """Returns the options that ``torch.compile`` passes to TorchInductor in a mode; None: not compiled.

    Raises:
        ValueError: there is no such mode.
    """
    if not isinstance(compiled, str):
        return {} if compiled else None
    from torch._inductor import list_mode_options

    modes = list_mode_options()
    if compiled not in modes:
        raise ValueError(
            f"optimize_model(compiled={compiled!r}) names no mode of torch.compile; its modes are {', '.join(modes)}."
        )
    return dict(modes[compiled])


def open_store(given: Store | Path | str | None) -> Store:
    """Returns a store, or the one in a folder, or that of the project in the current folder.

    Raises:
        FileNotFoundError: the folder does not exist.
        ConfigError: the project's settings are invalid.
    """
    if isinstance(given, Store):
        return given
    if given is None:
        return Store(Path.cwd(), load_settings(Path.cwd()).store)
    folder = Path(given).absolute()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no store {folder}; `pytest --kernelllm` creates one as .kernelllm in the project's folder."
        )
    return Store(folder.parent, folder.name)


class Replacement:
    """Replaces modules one by one; all instances of a class share the objects of its kernel."""

    def __init__(self, index: KernelIndex) -> None:
        """Takes the index of kernels to choose from."""
        self.index = index
        self.swaps: list[Swap] = []
        self._kernels: dict[tuple[type[nn.Module], str], TextKernel] = {}
        self._classes: dict[TextKernel, type[nn.Module]] = {}

    def replace(self, path: str, module: nn.Module) -> ModuleReport:
        """Swaps the module's class if there is a kernel for it, and reports on the module."""
        cls = type(module)
        try:
            record, kernel = self.choose(module)
            if kernel not in self._classes:
                self._classes[kernel] = dispatching(cls, kernel)
        except NoKernel as none:
            return ModuleReport(path, cls.__qualname__, reason=str(none))
        except TypeError as error:  # this class cannot be replaced
            return ModuleReport(path, cls.__qualname__, reason=str(error).rstrip("."))
        self.swaps.append(swap(path, module, self._classes[kernel]))
        gpu = record.verdict.environment.gpu
        return ModuleReport(path, cls.__qualname__, kernel.dotted, gain=record.verdict.speedup, gpu=gpu)

    def keep_if_faster(
        self, report: ModuleReport, found: Mapping[str, Ratio | str], least: float
    ) -> ModuleReport:
        """Undoes the swap of a module whose kernel does not run in the example, or does not surely make it faster.

        ``found`` has by path how many times as fast the example is, which must surely be more than ``least``, or why the
        kernel does not run.
        """
        gain = found.get(report.path)
        if not report.kernel or gain is None:
            return report
        if pays(gain, least):
            return replace(report, gain=gain, whole=True)
        [slow] = [swap for swap in self.swaps if swap.path == report.path]
        slow.undo()
        self.swaps.remove(slow)
        if isinstance(gain, Ratio):
            faster = "faster" if least == 1.0 else f"{least:.2f} times as fast"
            reason = f"the example is not {faster} with its kernel: {gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}]"
        else:
            reason = f"its kernel would not run in the example: {gain}"
        return ModuleReport(report.path, report.cls, reason=reason)

    def choose(self, module: nn.Module) -> tuple[KernelRecord, TextKernel]:
        """Returns the fastest kernel that fits the module, which stays as it is.

        Raises:
            NoKernel: there is none; the text is the reason.
        """
        if reason := unplaceable(module):
            raise NoKernel(reason)
        cls = type(module)
        kernels: dict[TextKernel, KernelRecord] = {}
        for record in self.index.records(cls):
            kernels.setdefault(self._kernel(cls, record), record)
        found = fitting(kernels, module)
        if isinstance(found, str):
            raise NoKernel(found)
        return kernels[found], found

    def _kernel(self, cls: type[nn.Module], record: KernelRecord) -> TextKernel:
        key = (cls, record.verdict.kernel_hash)
        if key not in self._kernels:
            self._kernels[key] = TextKernel(cls.__qualname__, key[1], record.candidate.source)
        return self._kernels[key]
