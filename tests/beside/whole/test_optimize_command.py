"""``kernelllm optimize``: from a small model to a file that makes it run verified kernels, in Triton's interpreter."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
from projects import COMMAND

from kernelllm_judge.core.kernel_module import unmodified
from pytest_kernelllm.beside.passk.schema import optimize_schema
from pytest_kernelllm.beside.whole.answer import Answer
from pytest_kernelllm.cli import main
from pytest_kernelllm.discover.scan import scan_file

FACTORY = '''
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(32, 32)

    def forward(self, x):
        left, right = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(left) * right)


class Blocks(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.layers(x)


def blocks():
    torch.manual_seed(0)
    print("building")
    return Blocks().eval(), torch.randn(8, 32)
'''

FRESH = """
import sys

import torch

from blocks import blocks
from kernelllm_runtime.adopted import DISPATCHER
from placed import OPTIONS, REGIONS, optimize

model, x = blocks()
with torch.no_grad():
    expected = model(x)
    found = optimize(model)(x)
torch.testing.assert_close(found, expected)
dispatchers = [getattr(cls.forward, DISPATCHER) for cls in REGIONS.values()]
forms = [form for d in dispatchers for known in d.known.values() for each in known.forms.values() for form in each]
ran = sum(form.kernel is not None for form in forms)
heavier = [name for name in sys.modules if name.partition(".")[0] in ("pytest_kernelllm", "kernelllm_judge")]
print(len(REGIONS), ran, OPTIONS, heavier)
"""

FROM_PYTHON = """
import torch

from blocks import blocks
from pytest_kernelllm import compile_model

model, x = blocks()
with torch.no_grad():
    expected = model(x)
    made = compile_model(model, example=(x,))
    assert model._compiled_call_impl is not None and sum(region.kept for region in made.answer.regions) >= 2
    torch.testing.assert_close(model(x), expected)
    made.restore()
    assert model._compiled_call_impl is None
print(made)
"""

IDLE = """
import torch

import placed
from kernelllm_runtime.adopted import DISPATCHER
from pytest_kernelllm.beside.whole.optimize import unused

cls = next(iter(placed.REGIONS.values()))
module = cls().eval()
draw = next(made for name, made in vars(placed).items() if name.endswith("_inputs") and cls.__name__[-12:] in name)
inputs = draw()
with torch.no_grad():
    print(unused(module))
    module(*(each.double() for each in inputs))
    print(unused(module))
    module(*inputs)
    print(unused(module))
    getattr(cls.forward, DISPATCHER).failed(RuntimeError("an illegal memory access"))
    print(unused(module))
"""

INTERPRETED = {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"}


def kernelllm(project, *arguments):
    environment = {**os.environ, **INTERPRETED}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=500
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project after one run."""
    path = tmp_path_factory.mktemp("whole")
    (path / "blocks.py").write_text(FACTORY)
    options = ("--generator", "inductor", "-k", "1", "--budget", "10min")
    outputs = ("--write", "placed.py", "--json", "answer.json", "--html", "answer.html")
    done = kernelllm(path, "optimize", "blocks.py:blocks", *options, *outputs)
    assert done.returncode == 0, done.stderr
    (path / "stdout.txt").write_text(done.stdout)
    return path


def test_the_answer_is_shown_and_follows_its_schema(project):
    data = json.loads((project / "answer.json").read_text())
    jsonschema.validate(data, optimize_schema())
    answer = Answer.from_json(data)
    assert answer.model == "Blocks" and answer.float64
    assert sum(region.kept for region in answer.regions) >= 2
    assert all(region.kernel for region in answer.regions if region.kept)
    assert {region.times for region in answer.regions} >= {1, 2}
    assert all(choice.reason == "there is no GPU to time it on" for choice in answer.choices)
    assert answer.chosen.error < 1e-6
    shown = (project / "stdout.txt").read_text()
    assert answer.sentence in shown and "building" not in shown
    assert answer.sentence.startswith(
        f"nothing is timed without a GPU; kernels run {sum(r.kept for r in answer.regions)} "
    )
    page = (project / "answer.html").read_text()
    assert answer.regions[0].name in page and "default-src 'none'" in page


def test_a_fresh_process_runs_the_kernels_with_the_runtime_alone(project):
    (project / "fresh.py").write_text(FRESH)
    done = subprocess.run(
        [sys.executable, "fresh.py"],
        cwd=project,
        env={**os.environ, **INTERPRETED},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kept = sum(region["kept"] for region in json.loads((project / "answer.json").read_text())["regions"])
    assert done.stdout.splitlines()[-1] == f"{kept} {kept} {{}} []"


def test_the_kernels_are_adopted_as_a_suggestion_would(project):
    scanned = scan_file(project / "placed.py", project)
    assert not scanned.problems and all(target.kernel for target in scanned.targets)
    for target in scanned.targets:
        file = project.joinpath(*target.kernel.split(".")).with_suffix(".py")
        assert unmodified(file.read_bytes())
        assert f"# Triton kernel for {target.id}" in file.read_text()


def test_pytest_judges_the_file_of_regions_like_any_other(project):
    (regions,) = (project / ".kernelllm" / "regions").glob("*.py")
    pytest_command = [sys.executable, "-m", "pytest", "--kernelllm-only", "--kernelllm-samples", "1", "-q"]
    pytest_command += ["--kernelllm-set", "generator=inductor", str(regions)]
    done = subprocess.run(pytest_command, cwd=project, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout
    assert "known before" in done.stdout, "the store remembers the verdicts of the command"


def test_a_second_run_knows_the_verdicts(project):
    done = kernelllm(
        project, "optimize", "blocks.py:blocks", "--generator", "inductor", "-k", "1", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    first = Answer.from_json(json.loads((project / "answer.json").read_text()))
    again = Answer.from_json(json.loads(done.stdout))
    assert again.regions == first.regions


def test_a_kernel_that_ran_in_no_call_is_told(project):
    done = subprocess.run(
        [sys.executable, "-c", IDLE],
        cwd=project,
        env={**os.environ, **INTERPRETED},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    never, outside, ran, failed = done.stdout.splitlines()
    assert never == outside == "the example's calls are outside what its kernel was verified for"
    assert ran == "" and failed.endswith("raised RuntimeError: an illegal memory access")


def test_from_python_the_model_runs_so_until_it_is_restored(project):
    (project / "from_python.py").write_text(FROM_PYTHON)
    environment = {**os.environ, **INTERPRETED, "KERNELLLM_SAMPLES": "1", "KERNELLLM_GENERATOR": "inductor"}
    done = subprocess.run(
        [sys.executable, "from_python.py"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "Blocks: nothing is timed without a GPU" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "optimize takes module:factory or file.py:factory, not 'nothing'."),
        (("gone.py:f",), "optimize gone.py:f: there is no file gone.py."),
        (
            ("blocks.py:blocks", "--write", "placed.txt"),
            "--write takes a file that ends in .py, not placed.txt.",
        ),
        (
            ("blocks.py:blocks", "--write", "blocks.py"),
            "blocks.py exists; name another file, or add --overwrite.",
        ),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks.py").write_text(FACTORY)
    assert main(["optimize", *arguments]) == 2
    assert capsys.readouterr().err == f"kernelllm: {message}\n"


def test_a_budget_is_a_time(capsys):
    with pytest.raises(SystemExit):
        main(["optimize", "a:b", "--budget", "soon"])
    assert "takes a time such as 90s or 10min, not 'soon'" in capsys.readouterr().err
