"""Other plugins, ways to import, and repositories as people have them: each is really run.

One run judges the project's candidate; all others take its verdict from a copy of that store, so they need seconds.
"""

import os
import shutil
import subprocess
import sys

import pytest
from projects import COMMAND, GOOD, LAYERS, lay_out
from repository import git

pytestmark = pytest.mark.slow

OPTIONS = ("--kernelllm", "--kernelllm-device=cpu", "--kernelllm-samples=1", "--kernelllm-generator=files")
OPTIONS = (*OPTIONS, "--kernelllm-set=candidates_dir=candidates", "-p", "no:cacheprovider")
OWN = "def test_first(): pass\ndef test_second(): pass\n"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A project with two tests of its own and one target whose only candidate was judged."""
    path = tmp_path_factory.mktemp("judged")
    lay_out(path, {"Scale_0.py": GOOD})
    (path / "test_own.py").write_text(OWN)
    (path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    done = run(path)
    assert "3 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    return path


@pytest.fixture
def project(judged, tmp_path):
    """A copy of it, under a name with a blank and an umlaut."""
    return shutil.copytree(judged, tmp_path / "größere modelle")


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """Returns a folder with a plugin from PyPI, which this project's own environment does not have."""
    folder = tmp_path_factory.mktemp("plugins")

    def installed(*names):
        into = folder / names[0]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(into), *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{names[0]} cannot be installed: {done.stderr[-200:]}")
        return into

    return installed


def run(path, *more, cwd=None, **environ):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "KERNELLLM_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *more],
        cwd=cwd or path,
        env={**kept, "COLUMNS": "160", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def passed(done, counts="3 passed, 1 skipped"):
    assert done.returncode == 0 and counts in done.stdout, done.stdout + done.stderr
    assert "1 verdict, 1 of them known before" in done.stdout, done.stdout
    assert "INTERNALERROR" not in done.stdout and "Traceback" not in done.stderr


# --------------------------------------------------------------------------- plugins

PLUGINS = {
    "randomly": (("pytest-randomly",), ("-p", "randomly", "-p", "no:xdist")),
    "randomly and xdist": (("pytest-randomly",), ("-n", "2")),
    "cov": (("pytest-cov", "coverage"), ("--cov=layers", "--cov-report=term")),
    "rerunfailures": (("pytest-rerunfailures", "packaging"), ("--reruns", "2")),
    "forked": (("pytest-forked", "py"), ("--forked",)),  # skipped where it fails without this plugin, too
}


@pytest.mark.parametrize("case", PLUGINS)
def test_with_a_plugin_from_pypi(project, plugin, case):
    names, options = PLUGINS[case]
    place = str(plugin(*names))
    alone = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "test_own.py"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": place},
        capture_output=True,
        text=True,
        check=False,
    )
    if alone.returncode:
        pytest.skip(f"{names[0]} does not work with pytest {pytest.__version__}: {alone.stdout[-200:]}")
    passed(run(project, *options, PYTHONPATH=place))


@pytest.mark.parametrize(
    "options", ["--dist=load", "--dist=loadscope", "--dist=loadfile", "--dist=loadgroup"]
)
def test_with_xdist(project, options):
    passed(run(project, "-n", "2", options))


@pytest.mark.parametrize(
    "options", ["--timeout=200", "--import-mode=importlib", "--import-mode=append", "--strict-markers"]
)
def test_with_options_of_pytests(project, options):
    passed(run(project, options))


def test_reruns_end_where_a_kernel_stays_wrong(project, plugin):
    gone = (project / "layers.py").read_text().replace("dims={", 'kernel="_triton.gone", dims={')
    (project / "layers.py").write_text(gone)
    names, options = PLUGINS["rerunfailures"]
    done = run(project, *options, PYTHONPATH=str(plugin(*names)))
    assert done.returncode == 1 and "1 failed" in done.stdout and "2 rerun" in done.stdout, done.stdout


# --------------------------------------------------------------------------- how sources stand there


def in_a_namespace_package(path):
    (path / "zoo" / "parts").mkdir(parents=True)
    (path / "layers.py").rename(path / "zoo" / "parts" / "layers.py")


def with_a_byte_order_mark(path):
    (path / "layers.py").write_bytes(b"\xef\xbb\xbf" + (path / "layers.py").read_bytes())


def with_windows_line_ends(path):
    (path / "layers.py").write_bytes((path / "layers.py").read_bytes().replace(b"\n", b"\r\n"))


def in_latin_1(path):
    text = f"# -*- coding: latin-1 -*-\n# Größe\n{LAYERS}"
    (path / "layers.py").write_bytes(text.encode("latin-1"))


def behind_a_link(path):
    (path / "real").mkdir()
    (path / "layers.py").rename(path / "real" / "layers.py")
    (path / "linked").symlink_to("real")


SOURCES = (in_a_namespace_package, with_a_byte_order_mark, with_windows_line_ends, in_latin_1, behind_a_link)


@pytest.mark.parametrize("change", SOURCES, ids=lambda change: change.__name__)
def test_sources_are_read_and_edited_as_they_stand(project, change):
    change(project)
    [layers] = [each for each in project.rglob("layers.py") if not each.is_symlink()]
    before = layers.read_bytes()
    done = run(project)
    assert done.returncode == 0 and "1 patch in" in done.stdout, done.stdout + done.stderr
    applied = subprocess.run([*COMMAND, "apply"], cwd=project, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    after = layers.read_bytes()
    assert b'kernel="' in after and after.count(b"\r\n") == before.count(b"\r\n")
    assert after[:3] == before[:3] and (b"\xf6" in after) == (b"\xf6" in before)
    adopted = run(project)
    assert adopted.returncode == 0 and "adopted" in adopted.stdout, adopted.stdout


# --------------------------------------------------------------------------- repositories


def start(path):
    (path / ".gitignore").write_text(".kernelllm/\n__pycache__/\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "start")


def plain(path, tmp_path):
    start(path)
    return path, {}


def a_work_tree(path, tmp_path):
    start(path)
    git(path, "worktree", "add", "-q", str(tmp_path / "tree"))
    return tmp_path / "tree", {}


def a_shallow_clone(path, tmp_path):
    start(path)
    git(path, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", path.as_uri(), str(tmp_path / "clone"))
    return tmp_path / "clone", {}


def a_submodule(path, tmp_path):
    start(path)
    (tmp_path / "outer").mkdir()
    git(tmp_path / "outer", "init", "-q", "-b", "main")
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "outer", *allow, "submodule", "add", "-q", str(path), "part")
    return tmp_path / "outer" / "part", {}


def one_of_two_roots(path, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(path, both / "one")
    shutil.copytree(path, both / "two")
    start(both)
    return both / "two", {}


def partly_staged(path, tmp_path):
    start(path)
    layers = path / "layers.py"
    layers.write_text(layers.read_text() + "\n\nSTAGED = 1\n")
    git(path, "add", "layers.py")
    layers.write_text(layers.read_text() + "UNSTAGED = 2\n")
    return path, {}


def with_git_dir_set(path, tmp_path):
    start(path)
    return path, {"GIT_DIR": str(path / ".git"), "GIT_WORK_TREE": str(path)}


REPOSITORIES = (
    plain,
    a_work_tree,
    a_shallow_clone,
    a_submodule,
    one_of_two_roots,
    partly_staged,
    with_git_dir_set,
)


@pytest.mark.parametrize("make", REPOSITORIES, ids=lambda make: make.__name__)
def test_a_kernel_is_offered_applied_and_reverted_in_any_repository(project, tmp_path, make):
    path, environ = make(project, tmp_path)
    if not (path / ".kernelllm").exists():
        shutil.copytree(project / ".kernelllm", path / ".kernelllm")
    elsewhere = {each: each.read_bytes() for each in tmp_path.rglob("*.py") if not each.is_relative_to(path)}
    before = (path / "layers.py").read_bytes()
    passed(run(path, **environ))

    def kernelllm(*arguments):
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=path,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    kernelllm("apply")
    assert b'kernel="_triton.scale"' in (path / "layers.py").read_bytes()
    assert "adopted" in run(path, **environ).stdout
    kernelllm("revert", "layers.py::Scale")
    assert (path / "layers.py").read_bytes() == before and not (path / "_triton" / "scale.py").exists()
    assert elsewhere == {each: each.read_bytes() for each in elsewhere}
