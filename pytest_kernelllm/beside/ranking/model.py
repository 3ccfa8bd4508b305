"""``rank``: where in a model a kernel is worth it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.records import Environment, Ratio
from kernelllm_judge.environment import find_environment
from kernelllm_judge.timing.roofline import Roofline
from kernelllm_runtime.adopted import DISPATCHER
from pytest_kernelllm.beside.optimize.environment import environment_of
from pytest_kernelllm.beside.optimize.kernel_index import KernelIndex, NoKernel
from pytest_kernelllm.beside.optimize.model import Replacement, open_store
from pytest_kernelllm.beside.optimize.report import UNKNOWN
from pytest_kernelllm.beside.ranking.ceilings import data_sheet
from pytest_kernelllm.beside.ranking.costs import Cost, costs
from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.ranking.factory import Subject, build, call_of
from pytest_kernelllm.beside.ranking.markers import Marker, marker_for
from pytest_kernelllm.beside.ranking.result import RankedModule, Ranking
from pytest_kernelllm.beside.ranking.rows import Group, groups
from pytest_kernelllm.beside.ranking.running import Report, Run, built_and_counted, counted, measured
from pytest_kernelllm.store import Store


class Covered:
    """Looks modules up in a store, for the GPU of the model, or without one for verdicts of Triton's interpreter."""

    def __init__(self, store: Store, model: nn.Module, arch: str) -> None:
        """``arch`` is the architecture without a GPU."""
        environment: Environment = environment_of(model) or find_environment("cpu", arch)
        self._kernels = Replacement(KernelIndex(store, environment))

    def find(self, module: nn.Module) -> tuple[str, Ratio | None, str]:
        """Returns the verified kernel that would run in a module, its measured speedup over eager, and why none counts.

        The kernel is named by the first 12 digits of its hash, or by its dotted name if it is adopted. Without any kernel for
        its class in the store, the reason is empty as well.
        """
        adopted = getattr(type(module).forward, DISPATCHER, None)
        if adopted:
            return adopted.kernel.dotted, None, ""
        try:
            record, kernel = self._kernels.choose(module)
        except NoKernel as none:
            return "", None, "" if str(none) == UNKNOWN else str(none)
        return kernel.dotted, record.verdict.speedup, ""


def rank(
    model: nn.Module | Callable[[], Any],
    example: Any = None,
    *,
    store: Store | Path | str | None = None,
    arch: str = "sm_90",
    count: bool = False,
    report: Report = lambda _: None,
) -> Ranking:
    """Runs a model once, and ranks its modules by the time that a kernel could save in each.

    With a GPU, each operation is timed there. Without one, its bytes and FLOPs are counted and its time is predicted, which
    needs no memory for most models: build them on the device ``meta``, or give a factory.

    Args:
        model: a model; or a factory, a callable without arguments that returns ``(model, example)`` or ``(model, args, kwargs)``.
        example: how the model is called: a tensor, a tuple of arguments, a dict of keyword arguments, ``(tuple, dict)``, or
            a callable that calls the model, such as ``lambda: model(tokens)``. Not with a factory.
        store: a store or its folder; by default that of the project in the current folder.
        arch: the GPU architecture to predict for without a GPU, such as ``sm_90``.
        count: predict even if there is a GPU.
        report: called with a few words before each stage.

    Raises:
        RankError: the model cannot be built or run, or the architecture's roofline is not known; one sentence.
        FileNotFoundError: the store does not exist.
        ConfigError: the project's settings are invalid.
    """
    sheet = data_sheet(arch)
    opened = open_store(store)
    on_gpu = torch.cuda.is_available() and not count
    factory = None
    if isinstance(model, nn.Module):
        if example is None:
            raise RankError("rank(model) needs an example: rank(model, example=lambda: model(inputs)).")
        if type(model).__name__ == "OptimizedModule":
            raise RankError("This model was compiled by torch.compile; rank the model that was passed to it.")
        subject = Subject(model, call_of(example, "rank"))
        device = next((t.device for t in (*model.parameters(), *model.buffers()) if t.is_cuda), None)
        if on_gpu and device is not None:
            with torch.cuda.device(device):
                run = measured(subject, report)
        else:
            run = counted(subject, report)
    elif callable(model) and example is None:
        factory = model
        if on_gpu:
            report("building the model")
            run = measured(build(factory, "cuda").to("cuda"), report)
        else:
            run = built_and_counted(factory, report)
    else:
        raise RankError(
            "rank takes a model and an example, or a factory without arguments that returns both."
        )
    if not run.trace.calls:
        raise RankError("The example does not call the model.")
    gpu = torch.cuda.get_device_name() if run.roofline else f"{sheet.gpu} ({arch})"
    covered = Covered(opened, run.subject.model, arch)
    return _ranking(run, run.roofline or sheet.roofline, gpu, covered, factory)


def _ranking(
    run: Run, roofline: Roofline, gpu: str, covered: Covered, factory: Callable[[], Any] | None
) -> Ranking:
    known = costs(run.trace, roofline)
    whole = known.whole
    found = groups(run.trace, known)
    made = [marker_for(group, run.subject.constructions, factory) for group in found]
    rows = tuple(_row(group, marker, whole, covered) for group, marker in zip(found, made, strict=True))
    notes = run.notes
    if run.subject.model.training:
        notes = (
            *notes,
            "The model is in train() mode; kernels are verified in eval() mode unless a marker says otherwise.",
        )
    return Ranking(
        rows,
        bool(run.trace.microseconds),
        gpu,
        whole.microseconds / 1e3,
        whole.headroom / 1e3,
        None if run.step_us is None else run.step_us / 1e3,
        whole.operations,
        notes,
        type(run.subject.model).__qualname__,
        tuple(made),
    )


def _row(group: Group, marker: Marker, whole: Cost, covered: Covered) -> RankedModule:
    cls, cost = type(group.module), group.cost
    kernel, gain, reason = covered.find(group.module)
    if not (kernel or reason):
        reason = f"cannot be marked: {marker.reason}" if marker.reason else marker.left_out
    return RankedModule(
        cls=f"{cls.__module__}.{cls.__qualname__}",
        paths=group.patterns,
        calls=group.calls,
        operations=cost.operations,
        ms=cost.microseconds / 1e3,
        own_ms=group.own.microseconds / 1e3,
        share=cost.microseconds / whole.microseconds if whole.microseconds else 0.0,
        headroom_ms=cost.headroom / 1e3,
        own_headroom_ms=group.own.headroom / 1e3,
        roofline=cost.roofline / cost.microseconds if cost.microseconds else 1.0,
        bytes=cost.bytes,
        fused_bytes=cost.fused_bytes,
        flops=cost.flops,
        kernel=kernel,
        gain=gain,
        reason=reason,
        marker=not marker.reason,
    )
