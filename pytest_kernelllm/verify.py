"""``kernelllm verify``: judges candidate files against reference files, without a project around them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.config import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.files import format_of
from pytest_kernelllm.judge.environment import find_environment, find_gpu
from pytest_kernelllm.records import Completion, Environment, Target, Verdict

if TYPE_CHECKING:
    from pytest_kernelllm.judge.judge import Judge


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate for it."""

    name: str
    reference: str
    """``file.py`` in KernelBench's form, or ``file.py::Class`` with a marked class."""
    candidate: Path


class Verifier:
    """Judges pairs with one warm judge. Thread-safe. Close with ``with``."""

    def __init__(self, settings: Settings, min_speedup: float = 0.0) -> None:
        """``min_speedup``: 0 reports speed without deciding by it."""
        self.settings = settings
        self.min_speedup = min_speedup
        self.environment: Environment = find_environment(settings)
        self._judge: Judge | None = None
        # User code is imported one file at a time: imports share sys.modules and sys.path.
        self._importing = threading.Lock()

    def __enter__(self) -> Verifier:
        """Start the judge.

        Raises:
            ImportError: torch or triton is missing.
        """
        from pytest_kernelllm.judge.judge import Judge

        gpu = find_gpu() if self.environment.device == "cuda" else None
        self._judge = Judge(
            self.environment, deadline=self.settings.deadline, gpu_uuid=gpu.uuid if gpu else ""
        )
        self._judge.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the judge."""
        if self._judge is not None:
            self._judge.__exit__(*exc)

    def verify(self, pair: Pair) -> Verdict:
        """The verdict on one pair; what cannot be read or built is inconclusive (reference) or rejected (candidate)."""
        from pytest_kernelllm.discover.live import TargetError, load_target
        from pytest_kernelllm.generate.render import RenderError, render
        from pytest_kernelllm.judge.judge import Brief

        assert self._judge is not None
        try:
            text = pair.candidate.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return self._verdict("inconclusive", f"{pair.candidate} cannot be read: {error}")
        completion = Completion("files", 0, text, format_of(text), note=pair.candidate.name)
        with self._importing:
            target = find_reference(pair.reference)
            if isinstance(target, str):
                return self._verdict("inconclusive", target)
            root = Path(pair.reference.partition("::")[0]).absolute().parent
            try:
                live = load_target(root, target)
            except TargetError as error:
                return self._verdict("inconclusive", str(error))
        try:
            candidate = render(completion, live)
        except RenderError as error:
            return self._verdict("rejected", str(error))
        brief = Brief(
            live,
            tolerance=live.options.tolerance,
            min_speedup=self.min_speedup,
            timing=self.settings.timing,
        )
        return self._judge.judge(candidate, brief)

    def verify_all(self, pairs: list[Pair], workers: int, done: Callable[[Pair, Verdict], None]) -> None:
        """Judge many pairs side by side, telling ``done`` of each as it is decided."""
        with ThreadPoolExecutor(workers) as pool:
            waiting = {pool.submit(self.verify, pair): pair for pair in pairs}
            for future in as_completed(waiting):
                done(waiting[future], future.result())

    def _verdict(self, status: Any, reason: str) -> Verdict:
        return Verdict(status, "render", reason, "", self.environment)


def find_reference(reference: str) -> Target | str:
    """The target that a command line names; or, if there is none, the sentence that says so."""
    file, _, name = reference.partition("::")
    path = Path(file).absolute()
    if not path.is_file():
        return f"There is no file {file}."
    found = scan_file(path, path.parent, kernelbench=not name)
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
    """Every subfolder that holds ``reference.py`` and ``candidate.py``, sorted by name."""
    return [
        Pair(sub.name, str(sub / "reference.py"), sub / "candidate.py")
        for sub in sorted(folder.iterdir())
        if (sub / "reference.py").is_file() and (sub / "candidate.py").is_file()
    ]


def to_line(pair: Pair, verdict: Verdict) -> str:
    """One line of JSON for a pair."""
    return json.dumps({"name": pair.name, **verdict.to_json()}, allow_nan=False)


def _names(targets: tuple[Target, ...]) -> str:
    return ", ".join(t.name for t in targets) or "none"
