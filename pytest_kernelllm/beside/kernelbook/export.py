"""Makes a data set of a project's verified kernels; every pair is judged as it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.program import program_name
from kernelllm_judge.core.records import KernelRecord, Target, Verdict
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.beside.export.choose import best_kernel
from pytest_kernelllm.beside.kernelbook.form import with_keyword_arguments
from pytest_kernelllm.beside.kernelbook.model_new import model_new
from pytest_kernelllm.beside.kernelbook.origin import origin
from pytest_kernelllm.beside.kernelbook.read import lay_out_pair
from pytest_kernelllm.beside.kernelbook.row import KernelBookError, Pair, row
from pytest_kernelllm.beside.kernelbook.same_program import known_problems, same_program
from pytest_kernelllm.beside.verify.pairs import Judged, VerifyError, verify_all
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.models.generator import shown_case
from pytest_kernelllm.models.prompt import PromptError, standalone

_PROVENANCE = ("written by", "licence", "source hash")
"""Lines of a kernel module's header."""


@dataclass(frozen=True)
class _Made:
    """A pair that was made of a target and its kernel."""

    target: Target
    pair: Pair
    kernel_module: str
    verdict: Verdict | None


def rows_of(
    root: Path,
    targets: Sequence[Target],
    records: Sequence[KernelRecord],
    licences: tuple[str, ...],
    settings: Settings,
    left_out: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Returns a row for each target that has a verified kernel; imports the targets' files, and judges.

    Args:
        left_out: called with a sentence for each target that gets no row.

    Raises:
        SessionError: nothing can be judged here.
    """
    made: list[_Made] = []
    seen: dict[str, str] = {}
    for target in targets:
        try:
            one = _made(root, target, records)
            name = same_program(one.pair.python_code) or program_name(one.pair.python_code)
            if name in seen:
                raise KernelBookError(f"it is the same program as {seen[name]}")
        except (SessionError, TargetError, PromptError) as error:
            left_out(f"{target.id}: {str(error).removeprefix(f'{target.id}: ').rstrip('.')}.")
            continue
        seen[name] = target.id
        made.append(one)
    accepted = _judged(made, settings, left_out)
    return [
        row(
            one.pair,
            one.target.name.rpartition(".")[2],
            one.kernel_module,
            origin(root, root / one.target.path, licences),
            _provenance(one, verdict),
        )
        for one, verdict in accepted
    ]


def _made(root: Path, target: Target, records: Iterable[KernelRecord]) -> _Made:
    problems = known_problems()
    own = same_program((root / target.path).read_text(encoding="utf-8", errors="replace"), target.name)
    source, verdict = best_kernel(root, target, records)
    live = load_target(root, target)
    code = standalone(live, shown_case(live))
    for name in (own, same_program(code)):
        if name in problems:
            raise KernelBookError(f"it is KernelBench's test problem {problems[name]}")
    kernel_module = source.decode()
    pair = Pair("Model", with_keyword_arguments(code), model_new(code, kernel_module))
    return _Made(target, pair, kernel_module, verdict)


def _judged(
    made: Sequence[_Made], settings: Settings, left_out: Callable[[str], None]
) -> list[tuple[_Made, Verdict]]:
    """Judges each pair as a reader of the data set would, and returns those that were accepted."""
    found: dict[str, Verdict] = {}

    def done(judged: Judged) -> None:
        found[judged.pair.name] = judged.verdict

    with TemporaryDirectory() as folder:
        pairs = [lay_out_pair(one.pair, one.target.id, Path(folder) / str(i)) for i, one in enumerate(made)]
        try:
            verify_all(pairs, replace(settings, timing=False), done)
        except VerifyError as error:
            raise SessionError(str(error)) from None
    accepted = []
    for one in made:
        verdict = found[one.target.id]
        if verdict.accepted:
            accepted.append((one, verdict))
        else:
            left_out(f"{one.target.id}: as a self-contained pair it is {verdict.verdict}: {verdict.reason}.")
    return accepted


def _provenance(one: _Made, judged: Verdict) -> dict[str, Any]:
    """Who wrote the kernels, and where they were verified; the best known environment of the two verdicts."""
    header = dict(
        line.removeprefix("# ").split(": ", 1)
        for line in one.kernel_module.split("\n\n", 1)[0].splitlines()
        if line.startswith("# ") and ": " in line
    )
    verdict = one.verdict if one.verdict and one.verdict.environment.on_gpu else judged
    environment = verdict.environment
    speedup = one.verdict.speedup if one.verdict else None
    return {
        "target": one.target.id,
        **{name.replace(" ", "_"): header.get(name) for name in _PROVENANCE},
        "verified_on": environment.gpu or "Triton's interpreter",
        "torch": environment.torch,
        "triton": environment.triton,
        "policy": environment.policy,
        "speedup": speedup.value if speedup else None,
    }
