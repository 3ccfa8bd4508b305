"""Keeps one judge open for many pairs of files, and each reference loaded until its source changes."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from kernelllm_judge.candidate import Speed, criteria_of, judge_candidate
from kernelllm_judge.core.errors import ConfigError
from kernelllm_judge.core.records import Verdict
from kernelllm_judge.formats.gpumode import SUBMISSION, translate
from kernelllm_judge.formats.pair import Pair
from kernelllm_judge.in_memory import make_judge, text_of
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.pair_files import PairError, find_reference
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import LiveTarget, load_target
from kernelllm_judge.tool.reproducer import write_reproducer


class Unjudged(Exception):
    """There is no verdict: one sentence."""

    def __init__(self, why: Exception) -> None:
        """``why`` is what was raised."""
        super().__init__(f"{str(why).removesuffix('.')}.")
        self.usable = isinstance(why, ServerFailed)
        """Whether the files and arguments can be used, so that another try may decide."""


@dataclass(frozen=True)
class Judged:
    """One candidate's verdict, with what can be done about it."""

    verdict: Verdict
    source: str = field(repr=False)
    """The kernel module that was judged; empty if the candidate could not be made into one."""
    reproducer: Path | None = None
    """The script that shows the wrong output, if one was asked for and could be written."""
    note: str = ""
    """Why there is no reproducer, where one was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as JSON-ready objects, with the reproducer's path in one more field."""
        return {**self.verdict.to_json(), "reproducer": str(self.reproducer) if self.reproducer else None}


@dataclass(frozen=True)
class _Loaded:
    """A reference as it was loaded."""

    live: LiveTarget
    content: str
    """Identifies its source, with all that its class depends on."""
    modules: frozenset[str]
    """The modules that were imported for it."""


class WarmJudge:
    """A judge that stays open between candidates. To be used by one thread."""

    def __init__(
        self,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        arch: str = "sm_90",
        deadline: float = 60.0,
        isolation: Literal["best", "strict"] = "best",
    ) -> None:
        """Starts nothing yet. The arguments are those of ``in_memory.judge``.

        Raises:
            Unjudged: candidates cannot be isolated as asked.
        """
        try:
            self._judge = make_judge(device, arch, deadline, isolation)
        except ConfigError as error:
            raise Unjudged(error) from None
        self._references: dict[str, _Loaded] = {}
        self._translated = tempfile.TemporaryDirectory(prefix="kernelllm-judge-")
        """Gets references that are made of other projects' forms."""

    def __enter__(self) -> Self:
        """Starts the judge's processes in the background."""
        self._judge.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends them."""
        self._judge.__exit__(*exc)
        self._translated.cleanup()

    def judge(
        self,
        reference: str,
        candidate: str | Path | None,
        speed: Speed,
        reproducer: Path | None = None,
        dtypes: Sequence[str] = (),
    ) -> Judged:
        """Judges one candidate.

        Args:
            reference: ``file.py`` or ``file.py::Class``, as for ``in_memory.judge``, or the folder of a GPU MODE problem; loaded
                again if it has changed.
            candidate: a text of several lines, or a file; None takes the folder's ``submission.py``.
            speed: what is measured and required.
            reproducer: the script to write where the candidate is rejected at a probe.
            dtypes: what the reference's parameters and inputs are cast to; none leaves them, or takes the marker's.

        Raises:
            Unjudged: a file cannot be used, the reference cannot be built or called, or the judge's processes cannot start.
        """
        try:
            text, note = (None, SUBMISSION) if candidate is None else text_of(candidate)
            given = {Path(reference.partition("::")[0]).resolve()}
            if Path(reference).is_dir():
                pair = self._translate(Path(reference), text, reproducer)
                reference, text = pair.reference, pair.candidate
            if text is None:
                raise PairError(f"{reference} is no folder with a submission of its own; name a candidate")
            live = self._load(reference, tuple(dtypes))
            source, verdict = judge_candidate(self._judge, live, text, note, speed)
            if reproducer is None or verdict.verdict != "rejected":
                return Judged(verdict, source)
            criteria = criteria_of(live, speed)
            given.add(Path(reference.partition("::")[0]).resolve())
            if isinstance(candidate, Path) or (candidate is not None and "\n" not in candidate):
                given.add(Path(candidate).resolve())
            why = write_reproducer(self._judge, criteria, live, source, verdict, reproducer, given)
            return Judged(verdict, source, None if why else reproducer, why)
        except (ConfigError, PairError, TargetError, ServerFailed) as error:
            raise Unjudged(error) from None

    def _translate(self, folder: Path, submission: str | None, reproducer: Path | None) -> Pair:
        """Returns the pair that a problem's folder stands for; beside the reproducer, which imports its reference."""
        into = Path(self._translated.name) if reproducer is None else reproducer.absolute().parent
        return translate(folder, submission, into, on_gpu=self._judge.environment.device == "cuda")

    def _load(self, reference: str, dtypes: tuple[str, ...]) -> LiveTarget:
        target = find_reference(reference)
        file = Path(reference.partition("::")[0]).absolute()
        content = f"{dtypes} {target.source_hash} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        key = f"{file}::{target.name}"
        if (known := self._references.get(key)) and known.content == content:
            return known.live
        for name in known.modules if known else ():
            sys.modules.pop(name, None)
        before = set(sys.modules)
        live = load_target(file.parent, target, dtypes=dtypes)
        ours = {name for name in set(sys.modules) - before if _is_within(name, file.parent)}
        self._references[key] = _Loaded(live, content, frozenset(ours | (known.modules if known else set())))
        return live


def _is_within(name: str, folder: Path) -> bool:
    """Whether a module's file belongs to the user's project, so that it is imported again with the reference."""
    file = str(getattr(sys.modules[name], "__file__", None) or "")
    return file.startswith(f"{folder}/") and "site-packages" not in file
