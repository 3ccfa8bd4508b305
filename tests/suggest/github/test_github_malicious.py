"""Artifacts that somebody made to do harm: nothing of them lands, and nobody is sent anything."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from repository import git
from verified import SOURCE, patch_of, replace_patch
from world import World

from kernelllm_judge.core.kernel_module import stamped
from pytest_kernelllm.suggest.github import artifact as reading
from pytest_kernelllm.suggest.github.errors import GitError, SuggestionRefused
from pytest_kernelllm.suggest.github.git import Git


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One for all: nothing changes it."""
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.hosting.close()


@pytest.fixture
def own_world(tmp_path):
    world = World(tmp_path)
    yield world
    world.hosting.close()


NEW = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x = 1\n"


def new(path, mode="100644"):
    return NEW.format(path, mode).encode()


def edit(path, old, new):
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n".encode()


WRITTEN = {
    "path traversal": new("../../evil.py"),
    "path traversal inside": new("pkg/../evil.py"),
    "an absolute path": new("/etc/evil.py"),
    "an absolute path, two slashes": new("//etc/evil.py"),
    "a symbolic link": new("pkg/_triton/link.py", "120000"),
    "a submodule": b"diff --git a/pkg/sub.py b/pkg/sub.py\nnew file mode 160000\n--- /dev/null\n+++ b/pkg/sub.py\n"
    b"@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n",
    "a runnable file": new("pkg/_triton/run.py", "100755"),
    "a workflow": new(".github/workflows/evil.yml"),
    "an edited workflow": edit(".github/workflows/ci.yml", "on: push", "on: pull_request_target"),
    "a workflow in another case": new(".GITHUB/workflows/evil.yml"),
    "a workflow that ends in .py": new(".github/workflows/evil.py"),
    "git's own folder": new(".git/hooks/evil.py"),
    "git's own folder by its short name": new("git~1/hooks/evil.py"),
    "git's own folder with an invisible character": new(".g\u200cit/config.py"),
    "a hidden file": new("pkg/.evil.py"),
    "a file at the top": new("conftest.py"),
    "a test": new("tests/conftest.py"),
    "a new module beside the target": new("pkg/torch.py"),
    "a kernel that no marker names": new("pkg/_triton/evil.py"),
    "code in the package": new("pkg/_triton/__init__.py"),
    "no Python": new("pkg/_triton/evil.so"),
    "a rename": b"diff --git a/setup.py b/pkg/_triton/x.py\nsimilarity index 100%\nrename from setup.py\nrename to pkg/_triton/x.py\n",
    "a copy": b"diff --git a/setup.py b/pkg/_triton/x.py\nsimilarity index 100%\ncopy from setup.py\ncopy to pkg/_triton/x.py\n",
    "a deletion": b"diff --git a/setup.py b/setup.py\ndeleted file mode 100644\n--- a/setup.py\n+++ /dev/null\n@@ -1,3 +0,0 @@\n"
    b"-from setuptools import setup\n-\n-setup()\n",
    "a file emptied": b"diff --git a/setup.py b/setup.py\n--- a/setup.py\n+++ b/setup.py\n@@ -1,3 +0,0 @@\n-from setuptools import setup\n-\n-setup()\n",
    "a changed mode": b"diff --git a/setup.py b/setup.py\nold mode 100644\nnew mode 100755\n",
    "a binary file": b"diff --git a/pkg/_triton/x.py b/pkg/_triton/x.py\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZQzWMT#Y01f~L\n\n",
    "a NUL byte": new("pkg/_triton/x.py").replace(b"x = 1", b"x = 1\0"),
    "two names": new("pkg/_triton/x.py").replace(b"b/pkg/_triton/x.py\nnew", b"b/pkg/_triton/y.py\nnew"),
    "two names, below": new("pkg/_triton/x.py").replace(b"+++ b/pkg/_triton/x.py", b"+++ b/setup.py"),
    "one file twice": new("pkg/_triton/x.py") * 2,
    "text before": b"From: somebody\n" + new("pkg/_triton/x.py"),
    "text between": new("pkg/_triton/x.py")
    + b"--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-from setuptools import setup\n+import os\n",
    "text after": new("pkg/_triton/x.py") + b"-- \n2.47\n",
    "a hunk that says less than it has": new("pkg/_triton/x.py") + b"+y = 2\n",
    "a hunk that says more than it has": new("pkg/_triton/x.py").replace(b"+1 @@", b"+1,9 @@"),
    "cut off": new("pkg/_triton/x.py")[:-1],
    "carriage returns in the headers": new("pkg/_triton/x.py").replace(b"\n", b"\r\n"),
    "a carriage return in a name": new('"pkg/_triton/x\\r.py"')
    .replace(b'a/"', b'"a/')
    .replace(b'b/"', b'"b/'),
    "a line feed in a name": new("x")
    .replace(b"a/x", b'"a/pkg/_triton/x\\nb.py"')
    .replace(b"b/x", b'"b/pkg/_triton/x\\nb.py"'),
    "a quoted path traversal": new("x")
    .replace(b"a/x", b'"a/\\056\\056/x.py"')
    .replace(b"b/x", b'"b/\\056\\056/x.py"'),
    "a right-to-left name": new("pkg/_triton/\u202eyp.x.py"),
    "markdown in a name": new("pkg/_triton/[x](http:evil)<img src=x>.py"),
    "nothing at all": b"\n",
    "empty": b"",
    "not UTF-8": new("pkg/_triton/x.py").replace(b"/x.py", b"/\xff.py"),
    "too many bytes": new("pkg/_triton/x.py").replace(b"+1 @@", b"+1,300000 @@")
    + b"+# aaaaaaaaaaaaaa\n" * 299_999,
    "too many files": b"".join(new(f"pkg/_triton/x{i}.py") for i in range(600)),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_patch_written_to_do_harm_never_lands(world, case):
    folder = replace_patch(world.artifact(), WRITTEN[case])
    before = world.hosting.heads()
    with contextlib.suppress(SuggestionRefused, GitError):
        assert world.suggest(folder).result == "outdated"  # git did not apply it
    assert world.hosting.heads() == before
    assert world.hosting.written() == []


def source(change):
    """An edit of the marked file beside its marker."""

    def apply(root: Path) -> None:
        file = root / "pkg" / "layers.py"
        file.write_bytes(change(file.read_bytes()))

    return apply


def kernel_text(change):
    """A kernel with something in it, whose digest is right all the same."""

    def apply(root: Path) -> None:
        file = root / "pkg" / "_triton" / "scale.py"
        file.write_text(stamped(change(file.read_text())))

    return apply


def raw_kernel(change):
    def apply(root: Path) -> None:
        file = root / "pkg" / "_triton" / "scale.py"
        file.write_bytes(change(file.read_bytes()))

    return apply


def link(root: Path) -> None:
    (root / "pkg" / "_triton" / "scale.py").unlink()
    (root / "pkg" / "_triton" / "scale.py").symlink_to("/etc/passwd")


def mode(root: Path) -> None:
    (root / "pkg" / "layers.py").chmod(0o755)


def second_kernel(root: Path) -> None:
    folder = root / "pkg" / "_triton"
    (folder / "other.py").write_bytes((folder / "scale.py").read_bytes())


def moved(path: str, module: str):
    """The good kernel in another file, named by the marker and importable there."""

    def apply(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "pkg" / "_triton" / "scale.py").rename(root / path)
        source(lambda text: text.replace(b"pkg._triton.scale", module.encode()))(root)

    return apply


ADDED = {
    "a kernel that pytest would import": moved("pkg/_triton/conftest.py", "pkg._triton.conftest"),
    "a kernel that pytest would collect": moved("pkg/_triton/test_x.py", "pkg._triton.test_x"),
    "a kernel that Python would import": moved("pkg/_triton/sitecustomize.py", "pkg._triton.sitecustomize"),
    "a kernel that Windows cannot hold": moved("pkg/_triton/con.py", "pkg._triton.con"),
    "a kernel by another name": moved("pkg/_triton/other.py", "pkg._triton.other"),
    "a kernel in a folder that ends alike": moved("evil/pkg/_triton/scale.py", "pkg._triton.scale"),
    "a kernel at the top": moved("_triton/scale.py", "_triton.scale"),
    "a kernel in another package": moved("pkg/sub/_triton/scale.py", "pkg.sub._triton.scale"),
    "a kernel of another target": kernel_text(
        lambda text: text.replace("layers.py::Scale", "layers.py::Shift")
    ),
    "a kernel of no target": kernel_text(lambda text: text.replace("layers.py::Scale", "layers.py::Other")),
    "a docstring of its own in the package": lambda root: (
        root / "pkg" / "_triton" / "__init__.py"
    ).write_text('"""Ours."""\n'),
    "a good kernel that no marker names": second_kernel,
    "another file edited": lambda root: (root / "setup.py").write_text("import os\n"),
    "a test edited": lambda root: (root / "pkg" / "test_layers.py").write_text("import os\n"),
    "code before the marker": source(lambda text: b"import os\n" + text),
    "code after it": source(lambda text: text + b"\nimport os\n"),
    "a comment": source(lambda text: text.replace(b"# Between the two.", b"# type: ignore")),
    "blanks": source(lambda text: text.replace(b"x + 1", b"x  + 1")),
    "line ends": source(lambda text: text.replace(b"\n", b"\r\n")),
    "one carriage return": source(lambda text: text.replace(b"# Between the two.", b"#\rimport os #")),
    "another argument of the marker": source(
        lambda text: text.replace(b"init=(64,)", b"init=__import__('os').system('x')")
    ),
    "a kernel that is not in the patch": source(lambda text: text.replace(b"pkg._triton.scale", b"os.path")),
    "the other marker": source(
        lambda text: text.replace(b"@triton_candidate\n", b'@triton_candidate(kernel="pkg.x")\n')
    ),
    "the class renamed": source(lambda text: text.replace(b"class Scale", b"class Scales")),
    "a file renamed": lambda root: git(root, "mv", "setup.py", "pkg/_triton/setup_.py"),
    "a file deleted": lambda root: (root / "setup.py").unlink(),
    "a file copied": lambda root: (root / "pkg" / "_triton" / "x.py").write_bytes(
        (root / "setup.py").read_bytes()
    ),
    "a mode": mode,
    "a link": link,
    "a process": kernel_text(
        lambda text: text.replace("import torch\n", "import subprocess\nimport torch\n", 1)
    ),
    "dynamic code": kernel_text(lambda text: text.replace("    out =", "    eval('1')\n    out =", 1)),
    "code at import": kernel_text(lambda text: text + "\nopen('/etc/passwd')\n"),
    "an encoding": kernel_text(
        lambda text: text.replace("# Triton kernel", "# coding: utf-7\n# Triton kernel", 1)
    ),
    "a hidden direction": kernel_text(lambda text: text + "# \u202e\n"),
    "a carriage return in the kernel": raw_kernel(lambda text: text + b"# \rimport os\n"),
    "an edited kernel": raw_kernel(lambda text: text.replace(b"x + 1", b"x + 2")),
    "no header": raw_kernel(lambda text: text.partition(b'"""')[2]),
    "no Python": kernel_text(lambda text: text + "((\n"),
    "a hook of pytest's": kernel_text(
        lambda text: text + "\n\ndef pytest_runtest_makereport(item, call):\n    return None\n"
    ),
    "a hook of pytest's by assignment": kernel_text(lambda text: text + "\npytest_configure = max\n"),
    "plugins of pytest's": kernel_text(lambda text: text + "\npytest_plugins = ['evil']\n"),
    "files that pytest leaves out": kernel_text(lambda text: text + "\ncollect_ignore_glob = ['*']\n"),
    "other weights": kernel_text(
        lambda text: text.replace("    out =", "    self.load_state_dict({})\n    out =", 1)
    ),
    "a hook on the layer": kernel_text(
        lambda text: text.replace("    out =", "    self.register_forward_hook(max)\n    out =", 1)
    ),
    "instructions": kernel_text(
        lambda text: text.replace(
            "    tl.store", "    tl.inline_asm_elementwise('', '=r,r', [x], tl.int32, True, 1)\n    tl.store"
        )
    ),
    "an address": kernel_text(
        lambda text: text.replace("    tl.store", "    tl.load(tl.cast(4096, x_ptr.dtype))\n    tl.store")
    ),
    "an address by annotation": kernel_text(lambda text: text.replace("(x_ptr,", "(x_ptr: '*fp32',")),
    "an address by an object": kernel_text(
        lambda text: text + "\n\nclass Pointer:\n    def data_ptr(self):\n        return 4096\n"
    ),
    "a Cyrillic name": kernel_text(lambda text: text.replace("out =", "\u043eut = out =", 1)),
    "a fullwidth name": kernel_text(
        lambda text: text.replace("    out =", "    \uff45val('1')\n    out =", 1)
    ),
    "a word without width": kernel_text(lambda text: text + "# \u200b\n"),
    "letters from right to left": kernel_text(lambda text: text + "# \u05d0\n"),
    "isolated directions": kernel_text(lambda text: text + "x = '\u2066'\n"),
    "a target that looks like another": kernel_text(
        lambda text: text.replace("layers.py::Scale", "layers.py::S\u0441ale")
    ),
    "a file that looks like another": moved("pkg/_triton/sc\u0430le.py", "pkg._triton.sc\u0430le"),
    "a mark in a name": moved("pkg/_triton/<!-- kernelllm:end -->.py", "pkg._triton.scale"),
    "a kernel that shadows a module": moved("torch.py", "torch"),
    "a kernel for the build": moved("pkg/_triton/setup.py", "pkg._triton.setup"),
    "a kernel among the tests": moved("tests/_triton/scale.py", "tests._triton.scale"),
    "a huge kernel": kernel_text(lambda text: text + "# " + "x" * 2**20 + "\n"),
    "deeply nested": kernel_text(lambda text: text + "x = " + "(" * 5000 + ")" * 5000 + "\n"),
    "code in the package": lambda root: (root / "pkg" / "_triton" / "__init__.py").write_text("import os\n"),
}


@pytest.mark.parametrize("case", ADDED)
def test_an_honest_patch_with_something_added_never_lands(world, case):
    honest = world.artifact(names=("Scale",))
    git(world.clone, "apply", str(honest / "patches" / "pkg.layers.Scale.patch"))
    ADDED[case](world.clone)
    before = world.hosting.heads()
    folder = replace_patch(honest, patch_of(world.clone))
    with pytest.raises(SuggestionRefused):
        world.suggest(folder)
    assert world.hosting.heads() == before
    assert world.hosting.written() == []


def test_a_kernel_written_by_hand_is_not_overwritten(own_world):
    world = own_world
    honest = world.artifact(names=("Scale",))
    (world.clone / "pkg" / "_triton").mkdir()
    (world.clone / "pkg" / "_triton" / "scale.py").write_text("# tuned by hand\n")
    git(world.clone, "add", "-A")
    git(world.clone, "commit", "-q", "-m", "by hand")
    git(world.clone, "push", "-q", str(world.hosting.bare), "main")
    git(world.clone, "rm", "-q", "pkg/_triton/scale.py")
    git(world.clone, "apply", str(honest / "patches" / "pkg.layers.Scale.patch"))
    with pytest.raises(SuggestionRefused, match=r"changes pkg/_triton/scale\.py"):
        world.suggest(replace_patch(honest, patch_of(world.clone)))
    assert world.hosting.written() == []


def test_the_honest_patch_as_git_writes_it_does_land(own_world):
    """The table above proves something only if it is the additions that are refused."""
    world = own_world
    honest = world.artifact(names=("Scale",))
    git(world.clone, "apply", str(honest / "patches" / "pkg.layers.Scale.patch"))
    assert world.suggest(replace_patch(honest, patch_of(world.clone))).result == "opened"


def test_a_link_in_the_repository_is_not_followed(own_world):
    """A fork may have made the package a link to anywhere."""
    world = own_world
    folder = world.artifact(names=("Scale",))
    (world.clone / "pkg" / "_triton").symlink_to("/tmp")
    git(world.clone, "add", "-A")
    git(world.clone, "commit", "-q", "-m", "link")
    git(world.clone, "push", "-q", str(world.hosting.bare), "main")
    assert world.suggest(folder).result == "outdated"
    assert world.hosting.written() == []


def test_sources_are_read_from_plain_files_only(own_world, tmp_path):
    """A link to anywhere would be read as if it were the project's."""
    (own_world.clone / "pkg" / "secrets.py").symlink_to("/etc/passwd")
    git(own_world.clone, "add", "-A")
    git(own_world.clone, "commit", "-q", "-m", "link")
    git(own_world.clone, "push", "-q", str(own_world.hosting.bare), "main")
    there = Git(tmp_path / "scratch", str(own_world.hosting.bare), None)
    there.write_sources(there.fetch("refs/heads/main"), tmp_path / "sources")
    assert not (tmp_path / "sources" / "pkg" / "secrets.py").is_symlink()
    assert (tmp_path / "sources" / "pkg" / "secrets.py").read_text() == "/etc/passwd"
    assert (tmp_path / "sources" / "pkg" / "layers.py").read_text() == SOURCE


# --------------------------------------------------------------------------- the folder and the report


def inside(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def many(folder: Path) -> None:
    for i in range(1200):
        (folder / "patches" / f"{i}.patch").touch()


def huge(folder: Path) -> None:
    with (folder / "patches" / "pkg.layers.Scale.patch").open("wb") as file:
        file.truncate(2**34)


def linked(name, to):
    def apply(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(to)

    return apply


def patches_elsewhere(folder: Path) -> None:
    (folder / "patches").rename(folder.parent / "elsewhere")
    (folder / "patches").symlink_to(folder.parent / "elsewhere")


def report(change):
    def apply(folder: Path) -> None:
        data = json.loads((folder / "report.json").read_text())
        text = change(data)
        (folder / "report.json").write_text(text if isinstance(text, str) else json.dumps(data))

    return apply


FOLDERS = {
    "no report": lambda folder: (folder / "report.json").unlink(),
    "the report is a link": linked("report.json", "/etc/passwd"),
    "a patch is a link": linked("patches/all.patch", "/etc/passwd"),
    "the patches are elsewhere": patches_elsewhere,
    "a pipe": lambda folder: os.mkfifo(folder / "patches" / "x.patch"),
    "another file": lambda folder: (folder / "evil.sh").touch(),
    "a hidden file": lambda folder: (folder / ".gitconfig").touch(),
    "a folder among the patches": lambda folder: inside(folder, "patches/x.patch/y").touch(),
    "no patch's name": lambda folder: (folder / "patches" / "x.py").touch(),
    "too many files": many,
    "a sparse file of 16 GiB": huge,
    "several patches and none for all": lambda folder: (
        [(folder / "patches" / f"{name}.patch").touch() for name in "ab"]
        and (folder / "patches" / "all.patch").unlink()
    ),
    "not JSON": report(lambda data: "{"),
    "a list": report(lambda data: "[]"),
    "deeply nested": report(lambda data: "[" * 100_000),
    "not a number": report(lambda data: json.dumps(data).replace("1.83", "NaN")),
    "a number without end": report(lambda data: json.dumps(data).replace("1.83", "1e999")),
    "a huge number": report(lambda data: json.dumps(data).replace("1.83", "9" * 5000)),
    "an unknown field": report(lambda data: data.update(evil=1)),
    "another version": report(lambda data: data.update(schema=99)),
    "no environment": report(lambda data: data.pop("environment") and None),
    "text for a number": report(lambda data: data["targets"][0]["target"].update(line="1; rm")),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_no_verify_job_writes_is_refused(world, case):
    folder = world.artifact()
    FOLDERS[case](folder)
    with pytest.raises(SuggestionRefused) as refused:
        reading.read_artifact(folder)
    assert "root:" not in str(refused.value)


# --------------------------------------------------------------------------- names and texts of the report


def test_there_are_more_than_a_hundred_of_them():
    assert len(WRITTEN) + len(ADDED) + len(FOLDERS) >= 100


END, OFFERED = "<!-- kernelllm:end -->", f"<!-- kernelllm:suggestion patch={'0' * 64} state=offered -->"
TEXTS = {
    "the end of the section": END,
    "the start of a section": OFFERED,
    "markup": "`|</code></details><img src=x onerror=x> [x](http://evil) @everyone",
    "another direction": "\u202e \u05d0\u05d1\u05d2",
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_of_the_report_cannot_break_the_pull_request_s_text(own_world, case):
    world, text = own_world, TEXTS[case]

    def spoil(data):
        data["environment"]["gpu"] = data["environment"]["driver"] = text
        for entry in data["targets"]:
            for candidate in entry["candidates"]:
                candidate["note"] = text
                candidate["verdict"]["isolation"] = text
                candidate["verdict"]["cases"] = [text]
        return data

    folder = world.artifact()
    report(spoil)(folder)
    assert world.suggest(folder).result == "opened"
    [pull] = world.hosting.pulls
    body = pull["body"]
    assert body.count(END) == body.count("<!-- kernelllm:suggestion") == 1
    assert body.rstrip().endswith(END)
    pull["body"] = f"Mine before.\n{body}Mine after.\n"
    folder = world.artifact(constant=2)
    report(spoil)(folder)
    assert world.suggest(folder).result == "updated"
    new = pull["body"]
    assert new.startswith("Mine before.\n") and new.endswith(f"{END}\nMine after.\n")
    assert new.count(END) == new.count("<!-- kernelllm:suggestion") == 1
    assert not set(new) & set("\u202e\u05d0\u05d1\u05d2")


def test_modules_that_the_patch_does_not_change_are_not_announced(own_world):
    """A report may claim more than its patch holds."""
    world = own_world
    folder = world.artifact()
    one = world.artifact(names=("Scale",))
    replace_patch(folder, (one / "patches" / "pkg.layers.Scale.patch").read_bytes())
    assert world.suggest(folder).result == "opened"
    [pull] = world.hosting.pulls
    assert "for 1 module," in pull["body"] and "Shift" not in pull["body"]
