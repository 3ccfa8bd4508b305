"""Writes a script of plain PyTorch that shows where a rejected candidate is wrong, at the smallest inputs that are found."""

from __future__ import annotations

import inspect
import io
import operator
import re
from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Case, Verdict
from kernelllm_judge.findings import Decision
from kernelllm_judge.judging import ENDS, Criteria, Judge
from kernelllm_judge.plans import make_plans
from kernelllm_judge.rules.outputs import OutputRule
from kernelllm_judge.run.backward import check_gradients, run_backward
from kernelllm_judge.run.call import run_probe, tensors_of
from kernelllm_judge.target import build
from kernelllm_judge.target.calls import Call
from kernelllm_judge.target.live import LiveTarget
from kernelllm_judge.tool.script import Parts, script
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe, smaller

SHOWN = frozenset({"run", "memory", "types", "guards", "inputs kept", "buffers updated", "gradients"})
"""Rules that one plain call shows to be broken, beside those about outputs at their own probes."""

GUARDED = frozenset({"memory", "guards"})

LARGEST = 64 * 1024 * 1024
"""Bytes of inputs, weights and outputs."""

TRIES = 6
"""Smaller sizes that are tried, from the smallest on, before those at which the candidate was rejected."""


class Unwritable(Exception):
    """There is no reproducer, nor an example; the text says why."""


def write_reproducer(
    judge: Judge,
    criteria: Criteria,
    live: LiveTarget,
    source: str,
    verdict: Verdict,
    file: Path,
    given: Set[Path],
) -> str:
    """Writes the script, and beside it the kernel module and the inputs that it loads, over none of the files ``given``.

    The candidate runs in the judge's isolated worker only, never here.

    Returns:
        Empty; or why there is none, in one sentence.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    try:
        probe = judge.rejected_at
        saved, reason = smallest(judge, criteria, source, verdict.rule, probe)
        assert probe is not None  # else there would be no smallest
        _write(live, live.case(probe.case), source, verdict, reason, saved, file, given)
    except Unwritable as why:
        return f"there is no reproducer: {why}"
    except OSError as error:
        return f"the reproducer cannot be written: {error.strerror}"
    return ""


def smallest(
    judge: Judge, criteria: Criteria, source: str, rule: str, probe: Probe | None
) -> tuple[dict[str, Any], str]:
    """Calls a rejected candidate at smaller sizes, in the judge's isolated worker.

    Args:
        judge: the judge that rejected it.
        criteria: by which.
        source: the candidate's kernel module.
        rule: the rule that it broke.
        probe: where; None if it was at no probe.

    Returns:
        Inputs, weights and attributes at the smallest of a few sizes at which it breaks the rule, and the reason there.

    Raises:
        Unwritable: one plain call does not show what is wrong.
        launching.ServerFailed: the judge's own processes cannot start.
    """
    if probe is None or not _shows(judge, rule):
        raise Unwritable(f"what breaks the rule `{rule}` does not show in one plain call")
    for each in _sizes(judge, criteria, source, probe):
        if found := _failing(judge, criteria, source, rule, each):
            return found
    raise Unwritable("it did not fail again at the same inputs")


def _shows(judge: Judge, name: str) -> bool:
    return name in SHOWN or any(isinstance(rule, OutputRule) and rule.name == name for rule in judge.rules)


def _sizes(judge: Judge, criteria: Criteria, source: str, probe: Probe) -> Iterator[Probe]:
    """Yields the same probe at smaller sizes that the candidate supports, the smallest first; at last the probe itself.

    Without a GPU, those of the same case in float32 come before one in bfloat16, which Triton's own interpreter cannot compute.
    """
    sizes, on_gpu = dict(probe.sizes), accelerator.is_gpu(judge.device)
    easier = () if on_gpu else (f"{probe.case.removesuffix('-bfloat16')}-float32",)
    plans = make_plans(
        source,
        criteria.subject.cases,
        judge.rules,
        judge.policy,
        on_gpu=on_gpu,
        seed=0,
        nonfinite=criteria.nonfinite,
    )
    for plan in sorted(plans, key=lambda each: each.case.name == probe.case):
        if plan.case.name in (*easier, probe.case) and all(
            low <= sizes[name] <= high for name, (low, high) in plan.ranges.items()
        ):
            fitting = list(smaller(plan.case, plan.ranges, sizes))
            for each in (*islice(reversed(fitting), TRIES), sizes):
                yield replace(probe, case=plan.case.name, sizes=tuple(each.items()))


def _failing(
    judge: Judge, criteria: Criteria, source: str, rule: str, probe: Probe
) -> tuple[dict[str, Any], str] | None:
    """Calls the candidate at a probe. Returns what the script loads, and the reason, if it breaks the rule there."""
    saved: dict[str, Any] = {}
    try:
        with judge.loaded(source, criteria, rule) as judging:
            prepared = judging.references.prepare(probe)
            if prepared.bytes > LARGEST:
                raise Unwritable(f"its inputs, weights and outputs take more than {LARGEST >> 20} MiB")
            saved = _saved(prepared)
            if rule == "gradients":
                gradients = judging.references.gradients(prepared)
                saved |= {"wrt": list(gradients.names), "into": list(gradients.into)}
                check_gradients(judging, prepared, run_backward(judging, prepared), rule)
                return None
            run = run_probe(judging, prepared)
            for each in judge.rules:
                if each.name != "gradients":
                    each.check_run(run)
    except Unasked:
        return None
    except ENDS as end:
        if isinstance(end, Decision) and end.rule == rule and saved:  # it was called
            return saved, end.reason
    return None


def _saved(prepared: PreparedProbe) -> dict[str, Any]:
    probe, module = prepared.probe, prepared.module
    return {
        "inputs": nested({name: _plain(value) for name, value in prepared.arguments.items()}),
        "state": {name: _plain(tensor) for name, tensor in tensors_of(module).items()},
        "attributes": {name: operator.attrgetter(name)(module) for name in probe.perturbed},
        "updates": list(prepared.updates.names),
        "training": module.training,
    }


def _plain(value: Any) -> Any:
    return value.detach().cpu().contiguous() if isinstance(value, torch.Tensor) else value


def _needs_gpu(saved: dict[str, Any]) -> str:
    held = tree_leaves((saved["inputs"], saved["state"]))
    bfloat16 = any(isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 for value in held)
    return "Triton's own interpreter cannot compute bfloat16, so this needs a GPU." if bfloat16 else ""


def _write(
    live: LiveTarget,
    case: Case,
    source: str,
    verdict: Verdict,
    reason: str,
    saved: dict[str, Any],
    file: Path,
    given: Set[Path],
) -> None:
    """Writes the three files.

    Raises:
        Unwritable: a script could not build the original or load its inputs.
    """
    made = build.init_arguments(live.way(case).init, live.target.name)
    if not isinstance(made, Call):
        raise Unwritable("its `init` returns a ready module, which a script cannot build")
    if any("[" in name for name in saved.get("wrt", ())):
        raise Unwritable("gradients of what a tuple holds are asked for")
    if "<locals>" in live.cls.__qualname__:
        raise Unwritable("its class is defined in a function, from where a script cannot import it")
    saved["init"] = [list(made.args), made.kwargs]
    held = io.BytesIO()
    try:
        torch.save(saved, held)
        held.seek(0)
        torch.load(held, weights_only=True)
    except Exception:  # whatever the user's objects raise
        raise Unwritable("its constructor or its call takes what is no tensor and no plain value") from None
    stem, reference = re.sub(r"\W", "_", file.stem), Path(inspect.getfile(live.cls)).resolve()
    if "." in reference.stem:
        raise Unwritable(f"{reference.name} has a name that a script cannot import")
    kernel, data = file.with_name(f"{stem}_kernel.py"), file.with_name(f"{stem}.pt")
    if over := {each.resolve() for each in (file, kernel)} & given:
        raise Unwritable(f"it would be written over {over.pop().name}")
    parts = Parts(
        says=f"Rejected by the rule `{verdict.rule}`: {reason}. {_needs_gpu(saved)}".strip(),
        reference=reference,
        cls=live.cls.__qualname__,
        kernel=kernel.stem,
        data=data.name,
        attributes=bool(saved["attributes"]),
        gradients="wrt" in saved,
        guarded=verdict.rule in GUARDED,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(source, encoding="utf-8")
    data.write_bytes(held.getvalue())
    file.write_text(script(parts), encoding="utf-8")
