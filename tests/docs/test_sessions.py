"""The sessions in the docs, executed: real judging, real git, the output as the pages have it."""

import subprocess

import pytest
from projects import CANDIDATES, lay_out
from sessions import page, replay

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


def test_the_tutorial_from_a_fresh_module_to_a_merged_patch(tmp_path):
    assert replay(page("tutorial/index.md"), tmp_path) == 19
    head = subprocess.run(
        ["git", "show", "main:norms.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert 'kernel="_triton.gated_norm"' in head.stdout


def test_adopting(project):
    assert replay(page("how-to/adopt.md"), project) == 8


def test_debugging_a_rejection(tmp_path):
    assert replay(page("how-to/debug-a-rejection.md"), tmp_path) == 5


def test_rewards(tmp_path):
    assert replay(page("how-to/train.md"), tmp_path) == 1


def test_export(project):
    assert replay(page("how-to/export.md"), project) == 3


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
