"""Every file of ``torture.py``: a patch by the real code, applied by the real git, imported, and taken back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from judged import accepted, kernel
from repository import git
from torture import NASTY, Nasty

from kernelllm_judge.core.records import CandidateId, KernelRecord, Target
from kernelllm_runtime.source.resolve import package_root
from pytest_kernelllm.cli import main
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.discover.adoption import adopted_file, adoption_state
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.patch import patch_name
from pytest_kernelllm.suggest.suggestions import write_suggestions

EDITED = {name: nasty for name, nasty in NASTY.items() if not nasty.refused}
REFUSED = {name: nasty for name, nasty in NASTY.items() if nasty.refused}

IMPORTER = """
import importlib.util, json, sys
from pytest_kernelllm.marker import OPTIONS_ATTRIBUTE
from pytest_kernelllm.runtime import DISPATCHER

for line in sys.stdin:
    file, folder, module, reach = json.loads(line)
    known = set(sys.modules)
    sys.path.insert(0, folder)
    if module:
        found = importlib.import_module(module)
    else:
        spec = importlib.util.spec_from_file_location("loose", file)
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    for name in reach.split("."):
        found = getattr(found, name)
    kernel = getattr(found.forward, DISPATCHER).kernel
    kernel.forward
    print(json.dumps([vars(found)[OPTIONS_ATTRIBUTE].kernel, str(kernel.spec.origin)]))
    del sys.path[0]
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or folder).startswith(folder):
            del sys.modules[name]
"""


def lay_out(root: Path, nasty: Nasty) -> Path:
    """Write a project, with a file that has nothing to do with it; the file in question."""
    for path, text in {**nasty.others, "other/notes.txt": "as committed\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    file = root / nasty.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(nasty.content(nasty.before))
    file.chmod(nasty.mode)
    for path, to in nasty.links.items():
        (root / path).symlink_to(to)
    return file


def suggest(root: Path, files: list[Path]) -> tuple[Store, list[Target], list[str]]:
    """Have patches written for all targets of files, each with a verified kernel; what was said about problems."""
    found = scan(files, root)
    store = Store(root)
    outcomes = []
    for target in found.targets:
        candidate = kernel(target)
        verdict = accepted(candidate)
        store.verdicts.add(
            KernelRecord(target.id, target.source_hash, candidate, verdict, "2026-01-01T00:00:00")
        )
        outcomes.append(Outcome(target, CandidateId("inductor"), candidate, verdict))
    write_suggestions(store, root, outcomes)
    return store, list(found.targets), [*map(str, found.problems), *store.problems]


def patches(store: Store) -> list[Path]:
    return sorted((store.path / "patches").glob("*.patch"))


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0][0] != "."]
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode) for path in files}


def patch_of(store: Store, target: Target) -> Path:
    return store.path / "patches" / f"{patch_name([target.id])}.patch"


def the_one(targets: list[Target], nasty: Nasty) -> Target:
    [target] = [target for target in targets if (target.path, target.name) == (nasty.path, nasty.target)]
    return target


@pytest.mark.parametrize("name", EDITED)
def test_git_applies_the_patch_and_nothing_else_changes(tmp_path: Path, name: str) -> None:
    nasty = EDITED[name]
    git(tmp_path, "init", "-q")
    for setting in nasty.config:
        git(tmp_path, "config", *setting.split("="))
    file = lay_out(tmp_path, nasty)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    (tmp_path / "other" / "notes.txt").write_text("not committed\n")
    (tmp_path / "other" / "new.txt").write_text("not committed\n")
    before, status = snapshot(tmp_path), git(tmp_path, "status", "--porcelain", "-z")

    store, targets, problems = suggest(tmp_path, [tmp_path])
    assert not problems
    target = the_one(targets, nasty)
    patch = patch_of(store, target)
    git(tmp_path, "apply", "--check", str(patch))
    git(tmp_path, "apply", str(patch))
    assert file.read_bytes() == nasty.content(nasty.after)
    [adopted] = [t for t in scan([file], tmp_path).targets if t.name == nasty.target]
    assert adopted.kernel == nasty.kernel and adopted.source_hash == target.source_hash
    assert adoption_state(tmp_path, adopted) == "current"
    after = snapshot(tmp_path)
    made = adopted_file(tmp_path, adopted)
    assert made is not None
    new = {made, made.with_name("__init__.py"), file}
    assert {path for path in after if after[path] != before.get(path)} <= {
        str(p.relative_to(tmp_path)) for p in new
    }
    git(tmp_path, "apply", "--reverse", str(patch))
    assert {path: content for path, (content, _) in snapshot(tmp_path).items()} == {
        path: content for path, (content, _) in before.items()
    }
    assert git(tmp_path, "status", "--porcelain", "-z") == status


@pytest.mark.parametrize("name", EDITED)
def test_apply_and_revert_give_the_original_bytes(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git, from a subfolder; the file keeps its permissions."""
    nasty = EDITED[name]
    file = lay_out(tmp_path, nasty)
    before = snapshot(tmp_path)
    store, targets, _ = suggest(tmp_path, [tmp_path])
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.setenv("PATH", "")
    assert main(["apply", patch_of(store, the_one(targets, nasty)).stem]) == 0
    assert file.read_bytes() == nasty.content(nasty.after)
    assert file.stat().st_mode & 0o777 == nasty.mode
    assert main(["revert", f"{os.path.relpath(file)}::{nasty.target}"]) == 0
    after = snapshot(tmp_path)
    if nasty.reverted is not None:
        assert after.pop(nasty.path)[0] == nasty.content(nasty.reverted)
        before.pop(nasty.path)
    if name == "a stale kernel":
        before.pop("_triton/norm.py")  # generated by us, and nothing uses it any more
    assert after == before
    assert (tmp_path / "_triton").exists() == any(path.startswith("_triton/") for path in before)


def test_all_are_imported_with_their_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process of their own, after `kernelllm apply` of all patches of a project at once."""
    questions, answers = [], []
    for number, nasty in enumerate(EDITED.values()):
        root = tmp_path / str(number)
        root.mkdir()
        file = lay_out(root, nasty)
        _, targets, _ = suggest(root, [root])
        monkeypatch.chdir(root)
        assert main(["apply"]) == 0
        adopted = scan([root], root).targets
        assert {t.id for t in adopted if adoption_state(root, t) == "current"} == {t.id for t in targets}
        folder = package_root(file)
        parts = file.relative_to(folder).with_suffix("").parts
        dotted = ".".join(parts).removesuffix(".__init__") if len(parts) > 1 else ""
        questions.append(json.dumps([str(file), str(folder), dotted, nasty.reach or nasty.target]))
        target = the_one(list(adopted), nasty)
        assert target.kernel == nasty.kernel
        answers.append([nasty.kernel, str(adopted_file(root, target))])
    done = subprocess.run(
        [sys.executable, "-c", IMPORTER],
        input="\n".join(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(zip(EDITED, map(json.loads, done.stdout.splitlines()), strict=True))
    assert found == dict(zip(EDITED, answers, strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_edited_safely_has_a_reason_and_no_patch(tmp_path: Path, name: str) -> None:
    nasty = REFUSED[name]
    lay_out(tmp_path, nasty)
    before = snapshot(tmp_path)
    files = [tmp_path / link / ("" if link.endswith(".py") else "m.py") for link in nasty.links]
    store, _, problems = suggest(tmp_path, files or [tmp_path])
    assert any(nasty.refused in problem for problem in problems), problems
    assert all(problem.endswith(".") and "\n" not in problem for problem in problems)
    assert not patches(store) and snapshot(tmp_path) == before


def test_the_table_is_long_enough() -> None:
    assert (
        len(NASTY) >= 40
        and len({nasty.content(nasty.before) + nasty.path.encode() for nasty in NASTY.values()}) >= 40
    )
