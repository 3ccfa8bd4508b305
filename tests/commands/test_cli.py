"""The ``kernelllm`` command, run as people run it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from projects import ANSWER, CANDIDATES, COMMAND, PROBLEM, lay_out

from pytest_kernelllm.cli import main
from pytest_kernelllm.report.schema import verdict_schema


def kernelllm(path, *arguments):
    return subprocess.run([*COMMAND, *arguments], cwd=path, capture_output=True, text=True, check=False)


@pytest.fixture
def pair(tmp_path):
    (tmp_path / "reference.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(ANSWER)
    return tmp_path


def test_verify_answers_by_exit_code_and_json(pair):
    (pair / "candidate.py").write_text(ANSWER.replace("+ 1)", "+ 2)"))
    done = kernelllm(pair, "verify", "reference.py", "candidate.py", "--device", "cpu", "--json", "-")
    assert done.returncode == 1, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, verdict_schema())
    assert answer["verdict"] == "rejected"


def test_verify_takes_a_marked_class_too(tmp_path):
    lay_out(tmp_path)
    done = kernelllm(
        tmp_path, "verify", "layers.py::Scale", "candidates/Scale_0.py", "--device", "cpu", "--no-timing"
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "accepted")


def test_verify_says_that_it_mapped_names(pair):
    (pair / "candidate.py").write_text(ANSWER.replace("self.weight", "self.gamma"))
    done = kernelllm(pair, "verify", "reference.py", "candidate.py", "--device", "cpu", "--json", "v.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        "accepted (correctness); its own gamma stand for the module's weight, by shape"
    )
    answer = json.loads((pair / "v.json").read_text())
    jsonschema.validate(answer, verdict_schema())
    assert answer["verdict"] == "accepted"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("gone.py", "candidate.py"), "no file gone.py"),
        (("reference.py", "gone.py"), "no file gone.py"),
        (("candidate.py", "candidate.py"), "KernelBench"),
    ],
)
def test_what_cannot_be_judged_is_two_and_one_sentence(pair, arguments, sentence):
    done = kernelllm(pair, "verify", *arguments, "--device", "cpu")
    assert done.returncode == 2
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use_is_one_sentence(tmp_path):
    done = kernelllm(tmp_path, "verify")
    assert done.returncode == 2
    assert "--pairs" in done.stderr


def test_nobody_has_to_read_to_the_end(tmp_path):
    marked = "from pytest_kernelllm import triton_candidate\nfrom torch import nn\n"
    marked += "".join(f"\n@triton_candidate\nclass C{i:01000}(nn.Module): ...\n" for i in range(200))
    (tmp_path / "model.py").write_text(marked)  # longer lines than a pipe holds
    command = subprocess.Popen(
        [*COMMAND, "scan"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout and command.stderr
    with command.stdout, command.stderr:
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == ""
    assert command.wait() == 141


def test_pairs_are_judged_with_one_line_each(tmp_path):
    for name, text in (
        ("good", ANSWER),
        ("wrong", ANSWER.replace("+ 1)", "+ 2)")),
        ("fails", ANSWER.replace("x, self.weight, out", "x, self.scale, out")),
        ("cut", ANSWER[:300]),
    ):
        folder = tmp_path / "pairs" / name
        folder.mkdir(parents=True)
        (folder / "reference.py").write_text(PROBLEM + "print('hello')\n")
        (folder / "candidate.py").write_text(text)
    done = kernelllm(tmp_path, "verify", "--pairs", "pairs", "--device", "cpu", "--json", "-")
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["name"]: line["verdict"] for line in lines} == {
        "good": "accepted",
        "wrong": "rejected",
        "fails": "rejected",
        "cut": "rejected",
    }
    assert done.stderr == "kernelllm: 1 accepted, 3 rejected, 0 inconclusive\n"


def test_a_reference_that_kills_its_process_is_one_sentence(pair):
    (pair / "reference.py").write_text(
        "import os\nimport torch\n" + PROBLEM.replace("return [64]", "os._exit(3)")
    )
    done = kernelllm(pair, "verify", "reference.py", "candidate.py", "--device", "cpu")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == (
        "inconclusive (render): the judging process was lost: it exited with status 3; a fresh one: it exited with status 3\n"
    )


def test_scan_lists_targets_without_importing_them(tmp_path):
    lay_out(tmp_path)
    (tmp_path / "layers.py").write_text("raise SystemExit\n" + (tmp_path / "layers.py").read_text())
    done = kernelllm(tmp_path, "scan")
    assert done.returncode == 0
    assert done.stdout.startswith("layers.py::Scale  line")
    assert kernelllm(tmp_path, "scan", "candidates").returncode == 1
    misspelt = kernelllm(tmp_path, "scan", "layer.py")
    assert (misspelt.returncode, misspelt.stderr) == (2, "kernelllm: There is no file or folder layer.py.\n")


def test_generate_prints_kernel_modules(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": CANDIDATES["Scale_0.py"]})
    done = kernelllm(
        tmp_path, "generate", "layers.py::Scale", "--generator", "files", "--candidates-dir", "candidates"
    )
    assert done.returncode == 0, done.stderr
    assert "SUPPORTS = (" in done.stdout
    assert "def forward(self, x):" in done.stdout


def test_the_store_can_be_looked_into(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": CANDIDATES["Scale_0.py"]})
    options = [
        "--kernelllm",
        "--kernelllm-generator=files",
        "--kernelllm-set=candidates_dir=candidates",
        "--kernelllm-device=cpu",
    ]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options], cwd=tmp_path, check=True, capture_output=True
    )
    listed = kernelllm(tmp_path, "store", "list").stdout
    assert "accepted" in listed
    assert "layers.py::Scale" in listed
    shown = json.loads(kernelllm(tmp_path, "store", "show", re.search(r"[0-9a-f]{12}", listed)[0]).stdout)
    assert shown["verdict"]["verdict"] == "accepted"
    explained = kernelllm(tmp_path, "explain", "layers.py::Scale")
    assert explained.returncode == 0 and "\n  accepted" in explained.stdout, explained.stderr
    assert kernelllm(tmp_path, "store", "verify").returncode == 0
    (tmp_path / "sub").mkdir()
    assert kernelllm(tmp_path / "sub", "store", "list").stdout == listed
    assert kernelllm(tmp_path / "sub", "store", "gc").stdout == "deleted the entries of 0 targets\n"
    assert kernelllm(tmp_path / "sub", "scan", "..").stdout == kernelllm(tmp_path, "scan").stdout

    [entry] = Path(tmp_path).glob(".kernelllm/targets/*/verdicts/*.json")
    entry.write_bytes(entry.read_bytes()[:-40])
    damaged = kernelllm(tmp_path, "store", "verify")
    assert damaged.returncode == 1
    assert "damaged" in damaged.stderr

    (tmp_path / "layers.py").write_text((tmp_path / "layers.py").read_text().replace("+ 1", "+ 3"))
    assert "deleted the entries of 1 target" in kernelllm(tmp_path, "store", "gc").stdout


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/no/such/path", "there is no /no/such/path"),
        ("nowhere", "there is no nowhere"),
        ("candidates", "there is no target in candidates"),
        (".", "broken.py:2: cannot be read as Python"),
        ("broken.py", "broken.py:2: cannot be read as Python"),
    ],
)
def test_gc_deletes_nothing_where_it_cannot_see_every_target(tmp_path, path, sentence):
    lay_out(tmp_path, {})
    (tmp_path / "broken.py").write_text("from pytest_kernelllm import triton_candidate\n@triton_candidate(\n")
    entry = tmp_path / ".kernelllm" / "targets" / ("0" * 64) / "kernels" / "kernel.py"
    entry.parent.mkdir(parents=True)
    entry.write_text("{}")
    done = kernelllm(tmp_path, "store", "gc", "layers.py", path)
    if path == "candidates":  # no targets there; with another path it is nothing to worry about
        assert done.returncode == 0 and not entry.exists()
        entry.parent.mkdir(parents=True)
        entry.write_text("{}")
        done = kernelllm(tmp_path, "store", "gc", path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("kernelllm: Nothing was deleted, because not all targets can be found: ")
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert entry.exists()


def test_gc_keeps_what_bench_measured(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    listed = json.loads(kernelllm(tmp_path, "scan", "--kernelbench", "--json").stdout)
    entry = tmp_path / ".kernelllm" / "targets" / listed["source_hash"] / "kernels" / "kernel.py"
    entry.parent.mkdir(parents=True)
    entry.write_text("{}")
    assert kernelllm(tmp_path, "store", "gc").stdout == "deleted the entries of 0 targets\n"
    assert entry.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "-k", "1", "--json"),
        ("verify", "a.py", "b.py", "--json"),
        ("scan", "--model", "m:f", "--write"),
        ("report", "report.json", "--html"),
    ],
    ids=lambda arguments: arguments[0] + arguments[-1],
)
@pytest.mark.parametrize(
    ("place", "sentence"), [("folder", "is a folder; name a file"), ("file/f.py", "cannot be written")]
)
def test_where_nothing_can_be_written_is_said_before_the_work(
    tmp_path, monkeypatch, capsys, arguments, place, sentence
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, place])
    assert sentence in capsys.readouterr().err
