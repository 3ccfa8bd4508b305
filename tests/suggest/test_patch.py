import os
import shutil
from pathlib import Path

import pytest
from repository import git

from kernelllm_judge.core.kernel_module import stamped
from kernelllm_judge.core.records import Candidate, Target
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.gitdiff import git_patch
from pytest_kernelllm.suggest.patch import apply, combined, suggestion

KERNEL = '"""x → y"""\nSUPPORTS = ()\n'


def commit(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")


def candidate(target: Target, source: str = KERNEL) -> Candidate:
    header = f"# Triton kernel for {target.id}\n# source hash: {target.source_hash}\n"
    return Candidate(target.id, stamped(header + source), "inductor")


TWO = """from pytest_kernelllm import triton_candidate


@triton_candidate
class First:
    pass


@triton_candidate(init=())
class Second:
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "layers.py").write_text(TWO)
    commit(tmp_path)
    return tmp_path


def snapshot(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in files if ".git/" not in p.as_posix()}


@pytest.mark.parametrize("name", ["with blank.py", "größe.py", 'quo"te\\back.py', "tab\there.py"])
def test_file_names_that_git_quotes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")
    commit(tmp_path)
    patch = git_patch({name: (b"old", b"new\n"), f"sub/{name}": (None, b"\xe9\r")})
    git(tmp_path, "apply", "-", stdin=patch)
    assert (tmp_path / name).read_bytes() == b"new\n"
    assert (tmp_path / "sub" / name).read_bytes() == b"\xe9\r"


def test_each_applies_alone_and_all_apply_together(project: Path) -> None:
    targets = scan([project], project).targets
    pairs = [(target, candidate(target)) for target in targets]
    each = [suggestion(project, target, made, targets) for target, made in pairs]
    both = combined(project, pairs)
    assert both is not None and None not in each
    for made in (*each, both):
        assert made is not None
        git(project, "apply", "-", stdin=made.patch)
        assert [t.kernel is not None for t in scan([project], project).targets] == [
            t.id in made.targets for t in targets
        ]
        git(project, "apply", "--reverse", "-", stdin=made.patch)
    assert set(both.files) == {
        "pkg/layers.py",
        "pkg/_triton/__init__.py",
        "pkg/_triton/first.py",
        "pkg/_triton/second.py",
    }


def test_patches_are_written_and_applied_by_name(project: Path) -> None:
    targets = scan([project], project).targets
    pairs = [(target, candidate(target)) for target in targets]
    made = [suggestion(project, *pairs[0]), combined(project, pairs)]
    paths = [Store(project).patches.write(each.name, each.patch) for each in made if each]
    assert [path.name for path in paths] == ["pkg.layers.First.patch", "all.patch"]
    assert git(project, "status", "--porcelain") == ""
    apply(project, paths[1])
    assert (project / "pkg/_triton/second.py").read_text() == pairs[1][1].source
    with pytest.raises(PatchError, match="does not apply"):
        apply(project, paths[1])
    with pytest.raises(PatchError, match="cannot be read"):
        apply(project, project / "missing.patch")


def test_adopted_and_identical_is_no_suggestion(project: Path) -> None:
    first, _ = scan([project], project).targets
    made = suggestion(project, first, candidate(first))
    assert made is not None
    apply(project, made)
    first, _ = scan([project], project).targets
    assert suggestion(project, first, candidate(first)) is None
    newer = suggestion(project, first, candidate(first, "SUPPORTS = (1,)\n"))
    assert newer is not None and set(newer.files) == {"pkg/_triton/first.py"}


def test_a_project_below_the_top_of_its_repository(tmp_path: Path) -> None:
    root = tmp_path / "mono" / "proj ect"
    root.mkdir(parents=True)
    (root / "layers.py").write_text(TWO)
    commit(tmp_path)
    first, _ = scan([root], root).targets
    made = suggestion(root, first, candidate(first))
    assert made is not None
    apply(root, made)
    assert (root / "_triton" / "first.py").exists()
    assert 'kernel="_triton.first"' in (root / "layers.py").read_text()
    git(tmp_path, "apply", "--reverse", "-", stdin=made.patch)
    for folder in (root, tmp_path):  # as a person would, from either folder
        git(folder, "apply", "-", stdin=made.patch)
        git(folder, "apply", "--reverse", "-", stdin=made.patch)


@pytest.mark.parametrize("in_git", [True, False])
def test_a_changed_file_is_left_alone(tmp_path: Path, in_git: bool) -> None:
    file = tmp_path / "layers.py"
    file.write_text(TWO)
    if in_git:
        commit(tmp_path)
    first, _ = scan([file], tmp_path).targets
    made = suggestion(tmp_path, first, candidate(first))
    assert made is not None
    file.write_text(TWO + "# more\n")
    with pytest.raises(PatchError, match=r"^layers\.py changed since the patch was made; .*\.$"):
        apply(tmp_path, made)
    assert set(snapshot(tmp_path)) == {"layers.py"}


def test_without_a_repository_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "layers.py"
    file.write_text(TWO)
    file.chmod(0o755)
    first, _ = scan([file], tmp_path).targets
    made = suggestion(tmp_path, first, candidate(first))
    assert made is not None
    path = Store(tmp_path).patches.write(made.name, made.patch)
    apply(tmp_path, made)
    assert file.read_bytes() == made.files["layers.py"][1] and file.stat().st_mode & 0o777 == 0o755
    file.write_text(TWO)
    shutil.rmtree(tmp_path / "_triton")
    apply(tmp_path, path)
    assert file.read_bytes() == made.files["layers.py"][1] and (tmp_path / "_triton/first.py").exists()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PatchError, match="needs git"):
        apply(tmp_path, path)


def test_variables_of_a_git_hook_do_not_mislead(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = scan([project], project).targets
    made = suggestion(project, first, candidate(first))
    assert made is not None
    monkeypatch.setenv("GIT_DIR", os.fspath(project / "nowhere"))
    apply(project, made)
    assert (project / "pkg/_triton/first.py").exists()
