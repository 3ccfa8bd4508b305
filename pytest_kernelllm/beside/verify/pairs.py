"""``kernelllm verify``: judges candidate files against reference files, without a project around them.

Judging is bound by Python, which prepares the inputs and steers the timing, so it is spread over processes: several for
each GPU, each with a warm judge, all taking from one queue. What is equal byte for byte is judged once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.records import Verdict
from kernelllm_judge.pair_files import PairError, find_reference, printable, read, read_text
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.engine import judging_environment, open_engine
from pytest_kernelllm.pool.jobs import PoolFailed, PoolJob, ProcessLost
from pytest_kernelllm.pool.messages import JudgeRequest, message
from pytest_kernelllm.pool.pool_process import StageOverdue


class VerifyError(RuntimeError):
    """Raised if nothing can be judged here; one sentence says why."""


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate for it."""

    name: str
    reference: str
    """``file.py`` in KernelBench's form, or ``file.py::Class`` with a marked class."""
    candidate: Path


@dataclass(frozen=True)
class Judged:
    """A pair with its verdict."""

    pair: Pair
    verdict: Verdict
    same_as: str = ""
    """Name of the pair that was judged in this one's place, because both are equal byte for byte."""

    def in_words(self) -> str:
        """Returns ``answer 3: accepted, 1.83x eager [1.80, 1.86]``, or why not."""
        return f"{self.pair.name}: {self.verdict.in_words()}"

    def to_line(self) -> str:
        """Returns one line of JSON."""
        same = {"same_as": self.same_as} if self.same_as else {}
        return json.dumps({"name": self.pair.name, **same, **self.verdict.to_json()}, allow_nan=False)


def verify_all(
    pairs: Sequence[Pair], settings: Settings, done: Callable[[Judged], None], min_speedup: float = 0.0
) -> None:
    """Judges pairs side by side, and calls ``done`` with each as it is decided.

    Args:
        pairs: in any order; the verdicts do not depend on it.
        settings: where to judge, how long, with timing or without, with how many processes.
        min_speedup: 0 reports speed without deciding by it.

    Raises:
        VerifyError: torch or triton is missing, or no judging process can be started.
    """
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise VerifyError(f"{name} is not installed; run `pip install 'pytest-kernelllm[torch]'`.")
    try:
        environment = judging_environment(settings)
    except PoolFailed as error:
        raise VerifyError(str(error)) from None

    def unjudged(reason: str) -> Verdict:
        return Verdict("inconclusive", "render", reason, "", environment)

    jobs: dict[str, PoolJob] = {}
    equal: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        job = pair_job(pair, settings, min_speedup)
        if isinstance(job, str):
            done(Judged(pair, unjudged(job)))
        else:
            jobs.setdefault(job.name, job)
            equal[job.name].append(pair)
    try:
        with open_engine(settings, environment, len(jobs)) as engine:
            for job, answer in engine.run(list(jobs.values())):
                match answer:
                    case ProcessLost():
                        verdict = unjudged(f"the judging process was lost: {answer}")
                    case StageOverdue():
                        verdict = unjudged(f"{answer}; if it needs longer, raise --reference-deadline")
                    case reply:
                        verdict = Verdict.from_json(reply["verdict"])
                first, *others = equal[job.name]
                done(Judged(first, verdict))
                for pair in others:
                    done(Judged(pair, verdict, same_as=first.name))
    except PoolFailed as error:
        raise VerifyError(str(error)) from None


def pair_job(pair: Pair, settings: Settings, min_speedup: float) -> PoolJob | str:
    """Returns what a judging process has to do, named by the bytes of both files; or why it cannot be done."""
    file = Path(pair.reference.partition("::")[0])
    try:
        reference, text = read(file), read_text(pair.candidate)
        target = find_reference(pair.reference)
    except PairError as error:
        return str(error)
    # The source hash stands for what the reference imports from files beside it.
    reference_hash = _hash(reference, target.name.encode(), target.source_hash.encode())
    request = JudgeRequest(
        reference=reference_hash,
        root=str(file.absolute().parent),
        target=target,
        inputs="",
        text=text,
        note=pair.candidate.name,
        min_speedup=min_speedup,
        baseline=settings.baseline,
        timing=settings.timing,
    )
    return PoolJob(_hash(reference_hash.encode(), text.encode()), reference_hash, message(request))


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d " % len(part) + part)
    return digest.hexdigest()


def find_pairs(folder: Path) -> list[Pair]:
    """Returns a pair for every subfolder, sorted by name, whether or not its files are there.

    Hidden folders and ``__pycache__`` are no pairs; broken links in the place of a folder are.

    Raises:
        OSError: the folder cannot be read.
        VerifyError: it holds no pair.
    """
    if not folder.is_dir():
        raise VerifyError(f"There is no folder {folder}.")
    found = [
        Pair(printable(sub.name), str(sub / "reference.py"), sub / "candidate.py")
        for sub in sorted(folder.iterdir())
        if (sub.is_dir() or (sub.is_symlink() and not sub.exists()))
        and not sub.name.startswith((".", "__pycache__"))
    ]
    if not found:
        raise VerifyError(f"{folder} has no subfolders; each holds one pair: reference.py and candidate.py.")
    return found
