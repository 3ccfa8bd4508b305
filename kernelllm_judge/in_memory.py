"""``judge`` and ``adopt`` for Python: a kernel is judged for a class or a module in memory, and adopted there."""

from __future__ import annotations

import copy
import hashlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, Self

import torch
from torch import nn

from kernelllm_judge.candidate import Speed, judge_candidate
from kernelllm_judge.core.records import Verdict
from kernelllm_judge.core.targets import Target
from kernelllm_judge.environment import find_environment, take_gpu
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.judging import Judge
from kernelllm_judge.pair_files import find_reference, read_text
from kernelllm_judge.target.calls import as_call
from kernelllm_judge.target.live import LiveTarget, live_class, load_target
from kernelllm_runtime.adopted import KernelLLMWarning
from kernelllm_runtime.install import install
from kernelllm_runtime.instance import OWN_CLASS, TextKernel, dispatching, swap
from kernelllm_runtime.marker import OPTIONS_ATTRIBUTE, Options, triton_candidate
from kernelllm_runtime.source.scan import scan_file

Inputs = Callable[..., Any] | torch.Tensor | Sequence[Any] | Mapping[str, Any]
"""What calls ``forward``: a callable as for ``triton_candidate``, or example arguments."""


@dataclass(frozen=True)
class JudgedKernel:
    """A candidate with its verdict, as ``judge`` returns it."""

    verdict: Verdict
    source: str = field(repr=False)
    """The kernel module that was judged and that ``adopt`` runs; empty if the candidate could not be made into one."""
    cls: type[nn.Module]
    """The class for which it was judged."""

    @property
    def accepted(self) -> bool:
        """Whether it is right and, where it was timed, fast enough."""
        return self.verdict.accepted


def judge(
    reference: type[nn.Module] | nn.Module | str | Path,
    candidate: str | Path | Callable[..., Any],
    *,
    cases: Inputs | Mapping[str, Inputs] | None = None,
    init: Any = (),
    dtypes: Sequence[str] = (),
    dims: Mapping[str, tuple[int, int]] | None = None,
    backward: bool = False,
    training: bool = False,
    tolerance: float | None = None,
    nonfinite: bool = True,
    min_speedup: float = 0.0,
    timing: bool = True,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    arch: str = "sm_90",
    deadline: float = 60.0,
    isolation: Literal["best", "strict"] = "best",
) -> JudgedKernel:
    """Judges a kernel against the module that it would replace, by the rules of ``pytest --kernelllm``.

    Nothing is stored. Each call starts its own judging processes, which takes some seconds; for many candidates use
    ``kernelllm verify --pairs``.

    Args:
        reference: an ``nn.Module`` class, or an instance that is judged as it is; its file must be readable. Or a file in
            KernelBench's form (``Model``, ``get_inputs``, ``get_init_inputs``), or ``file.py::Class`` with a marked class.
        candidate: a kernel module or an answer with a ``ModelNew``: its text, its file, or the function ``forward`` of an
            imported kernel module.
        cases: how to call the reference: a callable or a mapping of names to callables, as ``inputs`` of
            ``triton_candidate``; or example arguments (a tensor, a tuple, a dict of keyword arguments), of whose shapes,
            dtypes and scale others are drawn. Left out for a file, and for a marked class whose marker describes the call.
        init: the constructor's arguments, as for ``triton_candidate``; not used for an instance.
        dtypes: as for ``triton_candidate``, also for a file; ``dims``, ``backward``, ``training``, ``tolerance`` and
            ``nonfinite`` as well, but not for a file.
        dims: the inclusive range of each dimension that may vary; left out, none does.
        backward: also judge gradients.
        training: judge in ``train()`` mode.
        tolerance: the largest allowed relative error.
        nonfinite: whether NaN and infinities must come out as in the reference.
        min_speedup: reject below this speedup over eager; 0 only reports it.
        timing: whether to measure speed, on a GPU.
        device: where the candidate runs; ``cpu`` is Triton's interpreter. None takes the GPU if there is one.
        arch: the architecture to compile for where there is no GPU.
        deadline: seconds that the candidate may take.
        isolation: ``strict`` refuses to run where the candidate cannot be isolated fully.

    Returns:
        The verdict, and the kernel module that was judged. The verdict names every reason for a rejection.

    Raises:
        TargetError: the reference cannot be built or called; the message says what to do.
        TypeError: the reference is no module, ``cases`` is missing or too much, or the candidate has another form.
        PairError: a file cannot be read, or holds no reference.
        judge.launching.ServerFailed: the judging processes cannot start.
    """
    text, note = text_of(candidate)
    if isinstance(reference, str | Path):
        if cases is not None:
            raise TypeError("judge takes cases= for a class or a module; a file describes its own calls.")
        live = _in_file(str(reference), dtypes)
    else:
        live = _in_memory(
            reference,
            cases,
            init=init,
            dtypes=dtypes,
            dims=dims or {},
            backward=backward,
            training=training,
            tolerance=tolerance,
            nonfinite=nonfinite,
        )
    with make_judge(device or "auto", arch, deadline, isolation) as opened:
        source, verdict = judge_candidate(opened, live, text, note, Speed(timing, min_speedup))
    return JudgedKernel(verdict, source, live.cls)


def make_judge(
    device: Literal["auto", "cpu", "cuda"], arch: str, deadline: float, isolation: Literal["best", "strict"]
) -> Judge:
    """Returns a judge for this machine that is not started yet; the arguments are those of ``judge``."""
    environment = find_environment(device, arch)
    gpu = take_gpu() if environment.on_gpu else None
    return Judge(
        environment,
        deadline=deadline,
        gpu_uuid=gpu.uuid if gpu else "",
        isolation=probe_isolation(environment.device, isolation),
    )


def _in_file(reference: str, dtypes: Sequence[str]) -> LiveTarget:
    target = find_reference(reference)
    return load_target(Path(reference.partition("::")[0]).absolute().parent, target, dtypes=dtypes)


def _in_memory(reference: type[nn.Module] | nn.Module, cases: Any, **described: Any) -> LiveTarget:
    cls = reference if isinstance(reference, type) else type(reference)
    if not issubclass(cls, nn.Module):
        raise TypeError(
            f"judge takes an nn.Module, its class or a file as reference, not a {cls.__qualname__}."
        )
    cls = getattr(cls, OWN_CLASS, cls)
    options = vars(cls).get(OPTIONS_ATTRIBUTE)
    if cases is not None:
        options = _options(cases, **described)
    elif not isinstance(options, Options):
        raise TypeError(
            f"judge needs cases= for {cls.__qualname__}, which is not marked: example arguments or a callable."
        )
    if isinstance(reference, nn.Module):
        options = replace(options, init=lambda: _plain_copy(reference, cls))
    return live_class(_target(cls), cls, options)


@dataclass(frozen=True)
class Adoption:
    """A kernel that was adopted in memory; ``undo`` or the end of a ``with`` block takes it back."""

    name: str
    _undo: Callable[[], bool] = field(repr=False)

    def undo(self) -> None:
        """Gives the class or the module its original ``forward`` again; a second call does nothing.

        If something else has changed it since, it is left alone with a warning.
        """
        if not self._undo():
            warnings.warn(
                f"{self.name} was changed after adopt; undo that, then call undo() again.",
                KernelLLMWarning,
                stacklevel=2,
            )

    def __enter__(self) -> Self:
        """Returns the adoption."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Takes the kernel back."""
        self.undo()


def adopt(target: type[nn.Module] | nn.Module, kernel: JudgedKernel) -> Adoption:
    """Makes a class or one module run a judged kernel, in memory and until it is undone.

    Calls inside the verified domain run the kernel, all others the original ``forward``, as for a class that is adopted by
    its marker. To keep a kernel, write ``kernel.source`` to a file and name it in the marker.

    Args:
        target: the class that the kernel was judged for, or an instance of it. Other instances of an adopted module's class
            do not change.
        kernel: what ``judge`` returned.

    Returns:
        The adoption, whose ``undo`` takes it back.

    Raises:
        ValueError: the kernel was not accepted, or for another class.
        TypeError: the class cannot be changed, because its ``forward`` is not a plain function.
    """
    cls = target if isinstance(target, type) else type(target)
    name = cls.__qualname__
    if not kernel.accepted:
        raise ValueError(f"The kernel for {name} was not accepted: {kernel.verdict.reason}")
    if getattr(cls, OWN_CLASS, cls) is not kernel.cls:
        raise ValueError(f"The kernel was judged for {kernel.cls.__qualname__}, not for {name}.")
    text = TextKernel(name, kernel.verdict.kernel_hash, kernel.source)
    if isinstance(target, nn.Module):
        return Adoption(name, swap("", target, dispatching(cls, text)).undo)
    before = vars(cls).get("forward")
    install(cls, text)
    return Adoption(name, _restoring(cls, before, vars(cls)["forward"]))


def _restoring(cls: type[nn.Module], before: Any, after: Any) -> Callable[[], bool]:
    def undo() -> bool:
        now = vars(cls).get("forward")
        if now is after and before is None:
            del cls.forward  # it was inherited
        elif now is after:
            cls.forward = before
        return now is after or now is before

    return undo


def text_of(candidate: Any) -> tuple[str, str]:
    """Returns a candidate's text, and where it comes from."""
    if isinstance(candidate, FunctionType):
        if candidate.__name__ != "forward":
            raise TypeError(
                f"judge takes the function `forward` of a kernel module, not `{candidate.__qualname__}`."
            )
        candidate = Path(inspect.getsourcefile(candidate) or candidate.__code__.co_filename)
    if isinstance(candidate, str) and "\n" in candidate:
        return candidate, "text"
    if isinstance(candidate, str | Path):
        return read_text(Path(candidate)), Path(candidate).name
    raise TypeError(
        f"judge takes a candidate's text, its file, or its function `forward`, not a {type(candidate).__qualname__}."
    )


def _options(cases: Any, **arguments: Any) -> Options:
    named = isinstance(cases, Mapping) and bool(cases) and all(callable(each) for each in cases.values())
    makers = cases if named or callable(cases) else _like(cases)

    class Described:
        """Carries the marker's arguments, which checks them."""

    triton_candidate(Described, inputs=makers, **arguments)
    options: Options = getattr(Described, OPTIONS_ATTRIBUTE)
    return options


def _like(example: Any) -> Callable[[], Any]:
    """Returns a callable that draws arguments like the example's; other values than tensors stay as they are."""
    call = as_call(example)
    if call is None:
        raise TypeError(
            f"judge: cases= is a {type(example).__qualname__}; give a callable, or a tensor, a tuple or a dict of arguments."
        )

    def draw(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        given = value.detach().cpu()
        if given.is_floating_point() or given.is_complex():
            if not given.is_complex() and given.min() >= 0:
                return (torch.rand(given.shape) * given.max()).to(given.dtype)
            spread = given.std() if given.numel() > 1 else given.abs().max()
            return (torch.randn(given.shape) * spread + given.mean()).to(given.dtype)
        low, high = int(given.min()), int(given.max())
        return torch.randint(low, high + 1, given.shape).to(given.dtype)

    def make() -> Any:
        drawn = call.map(draw)
        return drawn.args, drawn.kwargs

    return make


def _plain_copy(module: nn.Module, cls: type[nn.Module]) -> nn.Module:
    """Returns a copy with the original class, if the module has adopted a kernel."""
    copied = copy.deepcopy(module).cpu()
    object.__setattr__(copied, "__class__", cls)
    return copied


def _target(cls: type[nn.Module]) -> Target:
    """Returns the target that the scan finds for a class; or, for one that is not marked in a file, one that names it."""
    try:
        file = Path(inspect.getsourcefile(cls) or "").absolute()
        source, line = inspect.getsource(cls), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        file, source, line = Path("memory.py").absolute(), cls.__qualname__, 1
    root = Path.cwd() if file.is_relative_to(Path.cwd()) else file.parent
    found = scan_file(file, root).targets if file.is_file() else ()
    for target in found:
        if target.name == cls.__qualname__:
            return target
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Target(file.relative_to(root).as_posix(), cls.__qualname__, line, digest, "call")
