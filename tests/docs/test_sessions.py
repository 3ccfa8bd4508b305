"""The sessions in the docs, executed: real judging, real git, the output as the pages have it."""

import subprocess
from dataclasses import replace

import pytest
from installed import ROOT, TORCH, build, environment
from pages import everything
from projects import CANDIDATES, lay_out
from recorded import adopt, run_of, timing, verdict
from sessions import page, replay

from kernelllm_judge.core.records import Environment
from pytest_kernelllm.report.json import write_report
from pytest_kernelllm.store import Store

SETTINGS = '[tool.kernelllm]\ngenerator = "files"\ncandidates_dir = "candidates"\nsamples = 1\n'


@pytest.fixture
def project(tmp_path):
    """A repository with one target and a good candidate."""
    lay_out(tmp_path, {"Scale_0.py": CANDIDATES["Scale_0.py"]})
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_the_tutorial_from_the_wheels_to_production(tmp_path):
    folders = ("kernelllm_runtime", "kernelllm_judge", ".")
    runtime, *others = (build(ROOT / folder, tmp_path / "wheels" / folder) for folder in folders)
    needed = ("pytest", "cloudpickle", "filelock", "nvidia-ml-py", "rich", "ruff")
    python = environment(tmp_path / "development", (*TORCH, *needed), runtime, *others)
    environment(tmp_path / "production", TORCH, runtime)
    project = tmp_path / "project"
    project.mkdir()
    path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin"
    assert replay(page("tutorial/index.md"), project, PATH=path) == 12
    assert 'kernel="_triton.gated_norm"' in (project / "norms.py").read_text()


def test_adopting(project):
    assert replay(page("how-to/adopt.md"), project) == 8


def test_debugging_a_rejection(tmp_path):
    assert replay(page("how-to/debug-a-rejection.md"), tmp_path) == 5


def test_a_leaderboard(tmp_path):
    assert replay(page("how-to/leaderboard.md"), tmp_path) == 2
    assert "pass@1 by KernelBench's own check" in (tmp_path / "leaderboard.html").read_text()


def test_regressions(tmp_path):
    target, kernel = adopt(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    old = Environment("cuda", "NVIDIA H200", torch="2.11.0", triton="3.5.0")
    new = replace(old, torch="2.13.0", triton="3.7.1")
    runs = Store(tmp_path).runs
    runs.put(run_of(target, verdict(kernel, old, timing(1.31)), "20261101-120000-5d8e"))
    runs.put(run_of(target, verdict(kernel, new, timing(1.12)), "20261115-083012-11f0", slower=True))
    assert replay(page("how-to/regressions.md"), tmp_path) == 2


def test_the_page_of_a_stored_report(tmp_path):
    write_report(tmp_path / "kernels.json", everything())
    assert replay(page("how-to/ci.md"), tmp_path) == 1
    assert (tmp_path / "kernels.html").is_file()


def test_rewards(tmp_path):
    assert replay(page("how-to/train.md"), tmp_path) == 1


def test_export(project):
    assert replay(page("how-to/export.md"), project) == 8


def test_the_judge_as_a_tool(tmp_path):
    assert replay(page("how-to/judge-as-a-tool.md"), tmp_path) == 6


def test_judging_from_python(tmp_path):
    assert replay(page("reference/python-api.md"), tmp_path) == 1


def test_ranking_a_model(tmp_path):
    assert replay(page("how-to/rank-a-model.md"), tmp_path) == 2


def test_optimize_model(tmp_path):
    interpreted = {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"}
    assert replay(page("how-to/optimize-model.md"), tmp_path, **interpreted) == 4


def test_training_with_kernels(tmp_path):
    interpreted = {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"}
    assert replay(page("how-to/train-with-kernels.md"), tmp_path, **interpreted) == 2


def test_a_session_that_shows_something_else_is_red(tmp_path):
    assert replay("```console\n$ echo 'two words'\ntwo words\n```\n", tmp_path) == 1
    with pytest.raises(AssertionError):
        replay("```console\n$ echo 'two words'\nthree words\n```\n", tmp_path)
