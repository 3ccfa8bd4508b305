"""Builds targets, writes their stand-alone modules, and compares the two in one fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelllm_judge.core.records import Case, Target
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.models.prompt import PromptError, standalone
from pytest_kernelllm.models.prompt.inputs import order, small_sizes

RUNNER = Path(__file__).with_name("run_standalone.py")


def targets(root: Path, *paths: Path) -> list[tuple[Path, Target]]:
    """What is marked below a project root, found without importing it."""
    found = scan(paths or [root], root)
    assert not found.problems
    return [(root, target) for target in found.targets]


def compare(folder: Path, marked: Iterable[tuple[Path, Target]]) -> dict[str, list[str]]:
    """By target id, what is wrong: texts of refusals, and tracebacks from the other process."""
    wrong: dict[str, list[str]] = {}
    written: list[str] = []
    for root, target in marked:
        wrong[target.id] = []
        try:
            live = load_target(root, target)
            for case in live.cases:
                (folder / f"{len(written):03}.py").write_text(standalone(live, case))
                torch.save(_held(live, case), folder / f"{len(written):03}.pt")
                written.append(target.id)
        except PromptError as error:
            wrong[target.id].append(str(error))
    for number, text in run(folder).items():
        wrong[written[int(number)]] += [text] if text else []
    return wrong


def run(folder: Path) -> Mapping[str, str]:
    command = [sys.executable, "-I", str(RUNNER), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=250)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _held(live: LiveTarget, case: Case) -> dict[str, Any]:
    """What the runner needs to know about the original, with other parameters than it starts with."""
    module = live.build(case)
    generator = torch.Generator().manual_seed(7)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        parameter.data = noise / max(1, parameter.shape[-1]) ** 0.5
    inputs = _positional(live, case, small_sizes(case))
    with torch.no_grad():
        torch.manual_seed(0)
        outputs = module(*inputs[0], **inputs[1])
    large = _positional(live, case, None, "meta")[2]
    return {
        "state": module.state_dict(),
        "inputs": inputs[2],
        "outputs": outputs,
        "described": [(tuple(x.shape), str(x.dtype)) if torch.is_tensor(x) else x for x in large],
        "dtype": case.dtype,
        "training": case.domain.training,
    }


def _positional(
    live: LiveTarget, case: Case, sizes: Mapping[str, int] | None, device: str = "cpu"
) -> tuple[tuple[Any, ...], dict[str, Any], list[Any]]:
    """The arguments as the original takes them, and as one list."""
    call = live.inputs(case, 0, sizes, device)
    bound = live.bind(call)
    names = order(live.signature, bound, "forward")
    values = [bound.get(name, live.signature.parameters[name].default) for name in names]
    return call.args, call.kwargs, values
