"""Reads a problem as GPU MODE's leaderboards have it: a folder with ``task.yml``, ``reference.py`` and a ``submission.py``.

The form is that of https://github.com/gpu-mode/reference-kernels: ``generate_input(**sizes)`` makes ``data``, ``ref_kernel(data)``
is right, ``custom_kernel(data)`` is the answer, and ``task.yml`` lists sizes as ``tests`` and ``benchmarks``. Each of these becomes
a case. ``data`` is taken apart: what it holds are the parameters of ``forward``. A tensor in it whose content does not matter to the
reference is where an answer may write its result; either gets a fresh one in each call, so that no call changes its inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelllm_judge.core.shorten import whole
from kernelllm_judge.formats.gpumode_data import REFERENCE, Leaf, rebuilt, taken_apart
from kernelllm_judge.formats.pair import Pair
from kernelllm_judge.pair_files import PairError, read_text

TASK, SUBMISSION = "task.yml", "submission.py"

_COMPILED = re.compile(r"\btorch\.compile\((\w+)(?:,[^()]*)?\)")
"""A function that is compiled, which changes nothing that it computes; no kernel module is."""

_DEVICE = re.compile(r"(?<=[\"'])cuda(?::\d+)?(?=[\"'])")


def translate(folder: Path, submission: str | None, into: Path, *, on_gpu: bool) -> Pair:
    """Writes a problem as a package in another folder, and returns it with the answer.

    The reference is imported and called at the sizes of the first test.

    Args:
        folder: the problem's.
        submission: the answer's text; None takes the folder's ``submission.py``.
        into: gets the package.
        on_gpu: whether a GPU judges. Otherwise ``"cuda"`` is replaced in the problem's files, and benchmarks, whose sizes
            Triton's interpreter does not reach, are left out.

    Raises:
        PairError: a file is missing or has another form, or the reference fails.
    """
    if not (folder / TASK).is_file():
        raise PairError(f"{folder} holds no {TASK}; name a file, or the folder of a GPU MODE problem.")
    task = _task(folder)
    package = _package(folder, task, into, on_gpu=on_gpu)
    tests = _listed(task, "tests", folder)
    benchmarks = _listed(task, "benchmarks", folder) if on_gpu and task.get("benchmarks") else []
    data, leaves = taken_apart(package, tests[0])
    cases = {
        f"{kind}-{n}": each
        for kind, found in (("test", tests), ("benchmark", benchmarks))
        for n, each in enumerate(found, 1)
    }
    problem = package / "problem.py"
    problem.write_text(_problem(cases, data, leaves), encoding="utf-8")
    answer = _COMPILED.sub(r"\1", read_text(folder / SUBMISSION) if submission is None else submission)
    call = f"custom_kernel({rebuilt(data, leaves)})"
    return Pair(f"{problem}::Problem", f"{answer}\n\n\nclass ModelNew:\n{_forward(leaves, call)}")


def _task(folder: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise PairError("task.yml needs PyYAML: pip install 'kernelllm-judge[gpumode]'.") from None
    try:
        task = yaml.safe_load(read_text(folder / TASK))
    except yaml.YAMLError as error:
        raise PairError(f"{folder / TASK} is no YAML: {whole(error)}.") from None
    if not isinstance(task, dict):
        raise PairError(f"{folder / TASK} holds no mapping.")
    return task


def _listed(task: Mapping[str, Any], name: str, folder: Path) -> Sequence[Mapping[str, Any]]:
    found = task.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise PairError(f"{folder / TASK} lists no {name}: arguments of generate_input, one mapping each.")
    return found


# --------------------------------------------------------------------------- the problem's files


def _package(folder: Path, task: Mapping[str, Any], into: Path, *, on_gpu: bool) -> Path:
    """Copies the problem's modules to a package whose name their texts and place give, so that no other's take its place."""
    listed = [each for each in task.get("files") or () if isinstance(each, dict)]
    sources = {str(each.get("name")): folder / str(each.get("source")) for each in listed}
    texts = {
        name: read_text(file)
        for name, file in ({REFERENCE: folder / REFERENCE} | sources).items()
        if name.endswith(".py") and name not in (SUBMISSION, task.get("config", {}).get("main"))
    }
    names = {name.removesuffix(".py") for name in texts}
    texts = {name: _relative(text, names) for name, text in texts.items()}
    texts[REFERENCE] = _without_contexts(texts[REFERENCE])
    if not on_gpu:
        texts = {name: _DEVICE.sub("cpu", text) for name, text in texts.items()}
    digest = hashlib.sha256(repr((str(into), sorted(texts.items()))).encode()).hexdigest()[:12]
    package = into / f"gpumode_{digest}"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in ({"__init__.py": ""} | texts).items():
        (package / name).write_text(text, encoding="utf-8")
    return package


def _relative(text: str, names: set[str]) -> str:
    """Makes imports of a problem's own modules relative."""
    own = "|".join(map(re.escape, sorted(names)))
    text = re.sub(rf"^(\s*)from ({own}) import\b", r"\1from .\2 import", text, flags=re.MULTILINE)
    return re.sub(rf"^(\s*)import ({own})$", r"\1from . import \2", text, flags=re.MULTILINE)


def _without_contexts(reference: str) -> str:
    """Leaves out contexts of the problem's ``utils``: they set PyTorch's modes for a comparison that the judge does in float64."""
    imported = re.findall(r"^from \.utils import (.+)$", reference, re.MULTILINE)
    names = "|".join(re.findall(r"\w+", " ".join(imported)))
    return (
        re.sub(rf"^(\s*)with (?:{names})\(\):", r"\1if True:", reference, flags=re.MULTILINE)
        if names
        else reference
    )


# --------------------------------------------------------------------------- what is written


def _forward(leaves: Sequence[Leaf], result: str) -> str:
    return f"    def forward(self, {', '.join(leaf.name for leaf in leaves)}):\n        return {result}\n"


def _problem(cases: Mapping[str, Mapping[str, Any]], data: Any, leaves: Sequence[Leaf]) -> str:
    written = [leaf.name for leaf in leaves if leaf.written]
    result = f"ref_kernel({rebuilt(data, leaves)})"
    if len(written) == 1:  # it says the result's dtype, whatever the reference computes in
        result = f"like({result}, {written[0]})"
    makers = "".join(
        f"    {name!r}: functools.partial(made, {arguments!r}),\n" for name, arguments in cases.items()
    )
    return _PROBLEM.format(
        held="".join(f"{leaf.path}, " for leaf in leaves), makers=makers, forward=_forward(leaves, result)
    )


_PROBLEM = '''\
"""A problem of GPU MODE's as a module; made from its folder."""

import functools

import torch
from torch import nn

from kernelllm_runtime.marker import triton_candidate

from .reference import generate_input, ref_kernel


def made(arguments):
    """Draws inputs, under a seed between 1 and the listed one."""
    if "seed" in arguments:
        arguments = arguments | {{"seed": 1 + int(torch.randint(max(1, arguments["seed"]), (), device="cpu"))}}
    data = generate_input(**arguments)
    return ({held})


def like(result, written):
    """Returns a result in the dtype of the tensor that answers may write it to."""
    return result.to(written.dtype) if isinstance(result, torch.Tensor) else result


INPUTS = {{
{makers}}}


@triton_candidate(inputs=INPUTS, dims={{}})
class Problem(nn.Module):
    """What is right."""

{forward}'''
