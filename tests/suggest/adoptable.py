"""A small package of two marked classes in a real repository, with a verified kernel for each in the store."""

from pathlib import Path

from judged import accepted, kernel
from repository import git

from kernelllm_judge.core.records import CandidateId, KernelRecord, Target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.suggestions import write_suggestions

LAYERS = """from pytest_kernelllm import triton_candidate


@triton_candidate
class First:
    def forward(self, x):
        return x


@triton_candidate(init=())
class Second:
    def forward(self, x):
        return x
"""


def lay_out(root: Path, repository: bool = True) -> Path:
    """Write and commit the project."""
    (root / "pkg").mkdir()
    (root / "pkg" / "__init__.py").touch()
    (root / "pkg" / "layers.py").write_text(LAYERS)
    if repository:
        git(root, "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "start")
    return root


def targets(root: Path) -> tuple[Target, ...]:
    return scan([root], root).targets


def judge(root: Path, *names: str, judged=accepted, body: str | None = None) -> Store:
    """Verify one kernel for each target of these names (all, without) and write the suggestions."""
    store, outcomes = Store(root), []
    for target in targets(root):
        if not names or target.name in names:
            candidate = kernel(target) if body is None else kernel(target, body)
            verdict = judged(candidate)
            store.verdicts.add(KernelRecord(target.id, target.source_hash, candidate, verdict, "2026-01-01"))
            outcomes.append(Outcome(target, CandidateId("inductor"), candidate, verdict))
    write_suggestions(store, root, outcomes)
    assert not store.problems
    return store


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file, but for git's and the store's."""
    files = [path for path in root.rglob("*") if path.is_file()]
    paths = {path.relative_to(root).as_posix(): path for path in files}
    return {
        name: path.read_bytes() for name, path in paths.items() if not name.startswith((".git", ".kernelllm"))
    }


def patches(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / ".kernelllm" / "patches").glob("*"))
