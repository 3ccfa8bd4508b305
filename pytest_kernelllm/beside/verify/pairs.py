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

from kernelllm_judge.core.records import Target, Verdict
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.words import speedups
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.pool.engine import judging_environment, open_engine
from pytest_kernelllm.pool.jobs import PoolFailed, PoolJob, ProcessLost
from pytest_kernelllm.pool.messages import JudgeRequest, message
from pytest_kernelllm.pool.pool_process import StageOverdue

LARGEST = 4 * 1024 * 1024
"""Bytes; no larger file is read."""


class VerifyError(RuntimeError):
    """Nothing can be judged here; one sentence."""


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
        reason = f": {self.verdict.reason}" if self.verdict.reason else ""
        return f"{self.pair.name}: {self.verdict.verdict}{speedups(self.verdict)}{reason}"

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
        done: called in this thread.
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
        reference, candidate = _read(file), _read(pair.candidate)
        target = find_reference(pair.reference)
        text = candidate.decode("utf-8")
    except _Unreadable as error:
        return str(error)
    except UnicodeDecodeError as error:
        return (
            f"{_shown(pair.candidate)} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})"
        )
    if isinstance(target, str):
        return target
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
    return PoolJob(_hash(reference_hash.encode(), candidate), reference_hash, message(request))


class _Unreadable(Exception):
    """A file cannot be read; the text says why."""


def _read(file: Path) -> bytes:
    shown = _shown(file)
    try:
        if not file.exists():
            raise _Unreadable(
                f"there is no file {shown}" + (", only a broken link" if file.is_symlink() else "")
            )
        if not file.is_file():
            raise _Unreadable(f"{shown} cannot be read: it is no regular file")
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        raise _Unreadable(f"{shown} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise _Unreadable(f"{shown} cannot be read: it is larger than {LARGEST >> 20} MiB")
    return content


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d " % len(part) + part)
    return digest.hexdigest()


def find_reference(reference: str) -> Target | str:
    """Returns the target that a command line names; or, if there is none, the sentence that says so."""
    file, _, name = reference.partition("::")
    path = Path(file).absolute()
    if not path.is_file():
        return f"There is no file {file}."
    found = scan_file(path, path.parent, kernelbench=not name)
    if found.problems and not found.targets:
        return _shown(str(found.problems[0]))
    if name:
        match = [t for t in found.targets if t.name == name]
        return match[0] if match else f"{file} marks no class {name}; it marks {_names(found.targets)}."
    benches = [t for t in found.targets if t.kind == "kernelbench"]
    if benches:
        return benches[0]
    if len(found.targets) == 1:
        return found.targets[0]
    return f"{file} is not in KernelBench's form (Model, get_inputs); name a marked class as {file}::Class."


def find_pairs(folder: Path) -> list[Pair]:
    """Returns a pair for every subfolder, sorted by name, whether or not its files are there.

    Hidden folders and ``__pycache__`` are no pairs; broken links in the place of a folder are.

    Raises:
        OSError: the folder cannot be read.
    """
    return [
        Pair(_shown(sub.name), str(sub / "reference.py"), sub / "candidate.py")
        for sub in sorted(folder.iterdir())
        if (sub.is_dir() or (sub.is_symlink() and not sub.exists()))
        and not sub.name.startswith((".", "__pycache__"))
    ]


def _shown(path: Path | str) -> str:
    """A path with what is not UTF-8 in it escaped, so that it can be printed."""
    return str(path).encode(errors="backslashreplace").decode()


def _names(targets: tuple[Target, ...]) -> str:
    return ", ".join(t.name for t in targets) or "none"
