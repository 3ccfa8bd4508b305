"""Places kernels in a model that is in memory: those of a file that ``OptimizeReport.save`` wrote."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.any_kernel import Unavailable
from kernelllm_runtime.classes import class_digest
from kernelllm_runtime.domain import misfit
from kernelllm_runtime.instance import OWN_CLASS, Swap, TextKernel, dispatching, swap
from kernelllm_runtime.methods import overridden
from kernelllm_runtime.scope import device_type

FORMAT = 1
"""Version of the file's form."""


@dataclass(frozen=True)
class Choice:
    """A kernel that was chosen for a class."""

    cls: str
    """``transformers.models.llama.modeling_llama.LlamaRMSNorm``"""
    digest: str
    """``digest_of`` the class that it was chosen for."""
    kernel: str
    """The kernel's hash."""
    source: str
    """The kernel module."""


@dataclass(frozen=True)
class Placement:
    """What ``place_kernels`` did to a model."""

    kernels: Mapping[str, str]
    """The kernel's hash of each module that runs one, by its dotted name in the model."""
    reasons: Mapping[str, str]
    """Why a module whose class is in the file runs its own ``forward``, by its dotted name."""
    swaps: Sequence[Swap] = ()

    def restore(self) -> None:
        """Gives every module its own class again; one whose class something else changed since is left alone."""
        for each in self.swaps:
            each.undo()


def place_kernels(model: nn.Module, file: Path | str) -> Placement:
    """Makes the modules of a model run the kernels that ``optimize_model`` chose elsewhere, without a store.

    As with ``optimize_model``, a module runs its kernel for calls inside the verified domain and its own ``forward``
    for all others. The file's kernels are code that runs in this process: trust it like your own source.

    Args:
        model: any ``nn.Module``.
        file: what ``OptimizeReport.save`` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a file.
    """
    choices, environment = load(Path(file))
    difference = _difference(environment, surroundings(model))
    texts = [(each, TextKernel(each.cls.rpartition(".")[2], each.kernel, each.source)) for each in choices]
    made: dict[tuple[type[nn.Module], TextKernel], type[nn.Module]] = {}
    kernels: dict[str, str] = {}
    reasons: dict[str, str] = {}
    swaps: list[Swap] = []
    for path, module in list(model.named_modules()):
        cls = type(module)
        known = [(each, text) for each, text in texts if each.cls == f"{cls.__module__}.{cls.__qualname__}"]
        if not known:
            continue
        current = [text for each, text in known if each.digest and each.digest == digest_of(cls)]
        found = unplaceable(module) or difference or (fitting(current, module) if current else _CHANGED)
        if isinstance(found, str):
            reasons[path] = found
            continue
        try:
            if (cls, found) not in made:
                made[cls, found] = dispatching(cls, found)
        except TypeError as error:  # this class cannot be replaced
            reasons[path] = str(error).rstrip(".")
            continue
        swaps.append(swap(path, module, made[cls, found]))
        kernels[path] = found.dotted
    return Placement(kernels, reasons, tuple(swaps))


_CHANGED = "its source is not what its kernel was verified for"


def _difference(there: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """The first difference between where kernels were chosen and where they are placed."""
    name = next((name for name in here if here[name] != there.get(name)), None)
    return name and f"its kernel was chosen for {name} {there.get(name)}, not {here[name]}"


def unplaceable(module: nn.Module) -> str | None:
    """Returns why no kernel may be placed in a module, whichever; None if one may."""
    if hasattr(type(module), OWN_CLASS):
        return "already optimized"
    if adopted := getattr(type(module).forward, DISPATCHER, None):
        return f"left alone: it has adopted {adopted.kernel.dotted}"
    return None


def fitting(kernels: Iterable[TextKernel], module: nn.Module) -> TextKernel | str:
    """Returns the first kernel with a domain that fits a module, or the reason that there is none."""
    if "forward" in vars(module):
        return "this instance has a forward of its own"
    if differs := overridden(module, type(module)):
        return differs
    misfits: list[str] = []
    for kernel in kernels:
        try:
            reasons = [misfit(domain, module) for domain in kernel.domains]
        except Unavailable as unavailable:
            return str(unavailable)
        if None in reasons:
            return kernel
        misfits += filter(None, reasons)
    return misfits[0] if misfits else "its kernel supports no domain"


def digest_of(cls: type) -> str:
    """Returns a digest of the source of a class and of its bases outside torch; empty if one of them has no source."""
    owned = [each for each in cls.__mro__ if each.__module__.partition(".")[0] not in ("torch", "builtins")]
    digests = [class_digest(each) for each in owned]
    return "-".join(each[:16] for each in digests) if all(digests) else ""


def surroundings(model: nn.Module) -> dict[str, str]:
    """Returns what must be the same where kernels are placed: versions, and the GPU that holds the model."""
    found = {"torch": torch.__version__, "triton": _triton()}
    if device_type() == "cpu":
        return {**found, "gpu": "Triton's interpreter"}
    if not torch.cuda.is_available():
        return {**found, "gpu": "none"}
    tensors = (*model.parameters(), *model.buffers())
    index = next((tensor.device.index for tensor in tensors if tensor.is_cuda), 0)
    major, minor = torch.cuda.get_device_capability(index)
    return {**found, "gpu": f"{torch.cuda.get_device_name(index)} (sm_{major}{minor})"}


def save(file: Path, choices: Iterable[Choice], environment: Mapping[str, str]) -> None:
    """Writes a file for ``place_kernels``."""
    kernels = [asdict(each) for each in dict.fromkeys(choices)]
    document = {"format": FORMAT, "environment": dict(environment), "kernels": kernels}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load(file: Path) -> tuple[tuple[Choice, ...], dict[str, str]]:
    """Returns the kernels of a file, and where they were chosen.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not of this form.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']}, this version reads {FORMAT}")
        choices = tuple(Choice(**each) for each in document["kernels"])
        environment = {str(name): str(value) for name, value in document["environment"].items()}
        if not all(isinstance(value, str) for each in choices for value in vars(each).values()):
            raise ValueError("a kernel is not described by texts")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is not a file that OptimizeReport.save wrote ({error}).") from None
    return choices, environment


def _triton() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "none"
