"""Data sets in KernelBook's form: written from a project, and read by ``verify`` and ``bench``. Judged for real."""

import json
import subprocess

import pyarrow.parquet
import pytest
from exported import make_project
from projects import ANSWER, COMMAND, LAYERS, PROBLEM
from repository import git

from pytest_kernelllm.beside.kernelbook.read import references
from pytest_kernelllm.beside.kernelbook.row import KernelBookError

COLUMNS = [
    "entry_point",
    "original_triton_code",
    "python_code",
    "triton_code",
    "repo_name",
    "module_name",
    "synthetic",
    "uuid",
    "licenses",
    "stars",
    "sha",
    "repo_link",
]
"""Those of GPUMODE/KernelBook, in its order."""

RELU = '''

@triton_candidate(inputs=rows)
class Rectify(nn.Module):
    """KernelBench's 19_ReLU under other names."""

    def forward(self, values):
        return torch.relu(values)  # as ever
'''

SAME = (
    LAYERS[LAYERS.index("@triton_candidate") :]
    .replace("Scale", "Affine")
    .replace("weight", "gain")
    .replace("(x)", "(hidden)")
    .replace("x * ", "hidden * ")
    .replace("self, x", "self, hidden")
)


def project_of(tmp_path, monkeypatch, text=LAYERS):
    project = make_project(tmp_path, monkeypatch, text)
    toml = '[project]\nname = "demo"\nlicense = "Apache-2.0"\n\n[tool.kernelllm]\ndevice = "cpu"\n'
    (tmp_path / "pyproject.toml").write_text(toml)
    return project


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A project in a repository with one right kernel, and its export."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        project = project_of(tmp_path_factory.mktemp("project"), monkeypatch)
        git(project.root, "init", "-q")
        git(project.root, "add", ".")
        git(project.root, "commit", "-qm", "layers")
        git(project.root, "remote", "add", "origin", "https://me:hf_secret@github.com/some/layers.git")
        project.verified(adds=1)
        done = project.run("--to", "kernelbook", "out.jsonl")
    return project, done


def test_an_export_has_kernelbooks_columns_and_states_where_a_pair_comes_from(exported):
    project, done = exported
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"exported Scale: {project.target.id}\n"
    [row] = rows_of(project.root / "out.jsonl")
    assert list(row) == [*COLUMNS, "provenance"]
    sha = git(project.root, "rev-parse", "HEAD")
    assert row["repo_link"] == f"https://github.com/some/layers/tree/{sha}"
    named = ("entry_point", "repo_name", "module_name", "synthetic", "licenses", "stars", "sha")
    assert [row[name] for name in named] == [
        "Model",
        "some/layers",
        "Scale",
        False,
        ["Apache-2.0"],
        None,
        sha,
    ]
    assert row["original_triton_code"].startswith("# Triton kernel for layers.py::Scale")
    provenance = row["provenance"]
    assert provenance["target"] == project.target.id and provenance["written_by"] == "test"
    assert provenance["verified_on"] == "Triton's interpreter" and provenance["torch"]
    assert "hf_secret" not in json.dumps(row)
    for code, name in ((row["python_code"], "Model"), (row["triton_code"], "ModelNew")):
        names = {}
        exec(code.replace("@triton.jit", ""), names)
        assert list(names[name](64).state_dict()) == ["weight"]
    assert "return [[64], {}]" in row["python_code"]


def test_what_is_exported_is_judged_as_it_is_read(tmp_path, monkeypatch):
    """A wrong kernel in the store, a test problem of KernelBench, and one program twice."""
    project = project_of(tmp_path, monkeypatch, LAYERS + RELU + "\n\n" + SAME)
    for target in project.targets:
        project.verified(adds=2, target=target)
    done = project.run("--to", "kernelbook", "out.jsonl")
    assert done.returncode == 1 and not (tmp_path / "out.jsonl").exists()
    file = project.file.name
    first, second, third, last = done.stderr.splitlines()
    assert first == f"left out: {file}::Rectify: it is KernelBench's test problem level1/19_ReLU.py."
    assert second == f"left out: {file}::Affine: it is the same program as {file}::Scale."
    assert third.startswith(f"left out: {file}::Scale: as a self-contained pair it is rejected: output 0")
    assert last == "kernelllm: nothing to export; out.jsonl was not changed."


def test_without_a_licence_nothing_is_written(tmp_path, monkeypatch):
    project = project_of(tmp_path, monkeypatch)
    (tmp_path / "pyproject.toml").write_text("[project]\nlicense = { file = 'LICENSE' }\n")
    done = project.run("--to", "kernelbook", "out.jsonl")
    assert done.returncode == 2 and "an SPDX identifier" in done.stderr
    for given, why in (
        (("--license", "mine!", "out.jsonl"), "an SPDX identifier"),
        (("--license", "MIT", "out.csv"), "must end in .jsonl"),
        (("--license", "MIT", "out.jsonl", "--version", "2"), "--version goes with --to hf-kernels"),
        (("--license", "MIT OR Apache-2.0", "out.jsonl"), "nothing to export"),
    ):
        done = project.run("--to", "kernelbook", *given)
        assert done.returncode and why in done.stderr and "Traceback" not in done.stderr


BOOK = {
    "entry_point": "Scaled",
    "python_code": PROBLEM.replace("Model", "Scaled").replace("return [64]", "return [[], {'width': 64}]"),
    "triton_code": ANSWER.replace("ModelNew", "ScaledNew"),
    "licenses": ["MIT"],
}
"""A row as KernelBook has them: another class name, and keyword arguments of the constructor."""


def test_verify_judges_the_rows_of_a_data_set(tmp_path):
    rows = [
        BOOK,
        BOOK | {"triton_code": BOOK["triton_code"].replace("+ 1)", "+ 2)")},
        BOOK | {"triton_code": None},
        BOOK | {"python_code": "class Scaled:"},
        BOOK | {"python_code": BOOK["python_code"] + "\n\ndef f(Model): ..."},
    ]
    file = tmp_path / "book.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    command = [*COMMAND, "verify", "--pairs", file.name, "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    verdicts = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert verdicts["00001_Scaled"] == "accepted"
    assert verdicts["00002_Scaled"].startswith("rejected: output 0")
    assert "book.parquet, row 3: it has no text in the column triton_code." in done.stderr
    assert "row 4: its python_code is not Python" in done.stderr
    assert "row 5: it uses the name Model for something else than Scaled." in done.stderr


@pytest.mark.slow
def test_bench_measures_a_generator_over_a_data_set(tmp_path):
    (tmp_path / "book.jsonl").write_text(json.dumps(BOOK) + "\n" + json.dumps({"entry_point": "X"}) + "\n")
    options = ("--generator", "inductor", "-k", "1", "--device", "cpu", "--json", "-")
    done = subprocess.run(
        [*COMMAND, "bench", "book.jsonl", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr  # a row could not be counted
    assert "book.jsonl:2: it has no text in the column python_code." in done.stderr
    [target] = json.loads(done.stdout)["targets"]
    assert target["target"]["path"].endswith("/00001_Scaled.py")
    assert target["score"]["correct"] == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "line 1 is not JSON"),
        ("[]\n", "line 1 is no row"),
        ("\n", "has no row"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_data_set_is_one_sentence(tmp_path, content, why):
    for name in ("book.jsonl", "book.parquet"):
        file = tmp_path / name
        if content is not None:
            file.write_text(content)
        expected = why if name.endswith("jsonl") or content is None else "is not a Parquet file"
        with pytest.raises(KernelBookError, match=expected):
            references(file, tmp_path / "store", lambda row, reason: None)
