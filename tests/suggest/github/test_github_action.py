"""The action, its steps run as a runner would, and what checks it without running it."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
import yaml
from hosting import NAME, TOKEN, Hosting
from projects import GOOD, lay_out
from repository import git
from runner import ROOT, Runner, load_action
from verified import event

from pytest_kernelllm.commands import suggest as command

pytestmark = pytest.mark.slow

WORKFLOWS = sorted((ROOT / "examples" / "workflows").glob("*.yml"))
CI = ROOT / ".github" / "workflows" / "ci.yml"
"""What checks this project itself."""
FILES = "--kernelllm-only --kernelllm-generator=files --kernelllm-set=candidates_dir=candidates --kernelllm-device=cpu --kernelllm-samples=1"
BRANCH = "kernelllm/suggestions/main"


def github(folder, name="push", content=None, **more):
    """The variables of a job on a hosted runner."""
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": event(folder, content or {}),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_RUN_ID": "77",
        "RUNNER_ENVIRONMENT": "github-hosted",
        "KERNELLLM_DISABLE": "",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        **more,
    }


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment that has all of this one's packages and can be installed into."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def verified(tmp_path_factory, python):
    """``mode: verify`` over a project in a subfolder: its one candidate is right."""
    folder = tmp_path_factory.mktemp("verify")
    workspace = folder / "workspace"
    (workspace / "project").mkdir(parents=True)
    lay_out(workspace / "project", {"Scale_0.py": GOOD})
    (workspace / ".gitignore").write_text(".kernelllm/\nkernelllm-artifact/\n__pycache__/\n")
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-q", "-m", "start")
    runner = Runner(folder / "temp", workspace, github(folder))
    ran = runner.run(mode="verify", python=str(python), pytest_args=FILES, working_directory="project")
    return workspace, ran


def test_verify_runs_start_to_finish(verified):
    workspace, ran = verified
    assert ran.success, ran.log
    assert ran.outputs == {
        "artifact": str(workspace / "kernelllm-artifact"),
        "patches": "1",
        "result": "",
        "pull-request": "",
    }
    artifact = workspace / "kernelllm-artifact"
    names = {p.relative_to(artifact).as_posix() for p in artifact.rglob("*") if p.is_file()}
    assert names == {"report.json", "report.html", "kernels.sarif", "patches/layers.Scale.patch"}
    assert "1 module of 1 with a verified kernel" in ran.summary
    assert "::notice file=project/layers.py,line=" in ran.log


def test_verify_lets_the_project_give_the_runner_no_commands(verified):
    _, ran = verified
    lines = ran.log.splitlines()
    pause = next(line for line in lines if line.startswith("::stop-commands::")).split("::")[2]
    assert lines.index(f"::stop-commands::{pause}") < next(
        i for i, line in enumerate(lines) if "passed" in line
    )
    assert f"::{pause}::" in lines


def test_suggest_turns_what_verify_wrote_into_a_pull_request(verified, tmp_path):
    workspace, _ = verified
    hosting = Hosting(tmp_path / "hosting")
    git(workspace, "push", "-q", str(hosting.bare), "main")
    elsewhere = tmp_path / "workspace"
    elsewhere.mkdir()
    (workspace / "kernelllm-artifact").rename(elsewhere / "kernelllm-artifact")
    run = {
        "id": 55,
        "event": "push",
        "head_branch": "main",
        "head_sha": hosting.heads()["main"],
        "head_repository": {"full_name": NAME},
        "pull_requests": [],
    }
    environ = github(
        tmp_path,
        "workflow_run",
        {"workflow_run": run},
        GITHUB_API_URL=f"{hosting.url}/api",
        GITHUB_SERVER_URL=hosting.url,
    )
    runner = Runner(tmp_path / "temp", elsewhere, environ)
    try:
        ran = runner.run(mode="suggest", python=sys.executable, token=TOKEN)
        assert ran.success, ran.log
        assert (ran.outputs["result"], ran.outputs["pull-request"]) == (
            "opened",
            f"{hosting.url}/{NAME}/pull/1",
        )
        assert hosting.changed_in(BRANCH) == {"project/layers.py", "project/_triton/scale.py"}
        assert "actions/runs/55" in hosting.pulls[0]["body"]
        assert "opened" in ran.summary
        assert TOKEN not in ran.log + ran.summary
    finally:
        hosting.close()
        (elsewhere / "kernelllm-artifact").rename(workspace / "kernelllm-artifact")


def test_a_failing_adopted_kernel_makes_the_job_red_and_is_annotated(verified, tmp_path, python):
    workspace, _ = verified
    adopted = tmp_path / "workspace"
    git(tmp_path, "clone", "-q", str(workspace), str(adopted))
    git(adopted, "apply", str(workspace / "kernelllm-artifact" / "patches" / "layers.Scale.patch"))
    file = adopted / "project" / "layers.py"
    file.write_text(file.read_text().replace("+ 1", "+ 3"))
    runner = Runner(tmp_path / "temp", adopted, github(tmp_path))
    ran = runner.run(
        mode="verify", python=str(python), install="false", pytest_args=FILES, working_directory="project"
    )
    assert not ran.success
    assert "::error file=project/layers.py," in ran.log
    assert "adopted kernel fails" in ran.summary
    assert (adopted / "kernelllm-artifact" / "report.json").is_file()


def test_verify_with_a_token_is_refused_before_anything_of_the_project_runs(verified, tmp_path, python):
    workspace, _ = verified
    ran = Runner(tmp_path / "temp", workspace, github(tmp_path)).run(
        mode="verify", python=str(python), install="false", token=TOKEN, working_directory="project"
    )
    assert not ran.success
    assert "needs no token" in ran.log
    assert "stop-commands" not in ran.log
    assert TOKEN not in ran.log


def test_an_unknown_mode_is_refused(tmp_path):
    ran = Runner(tmp_path / "temp", tmp_path, github(tmp_path)).run(mode="${{ evil }}")
    assert not ran.success
    assert "must be verify or suggest" in ran.log


def test_suggest_takes_nothing_from_the_folder_it_starts_in(tmp_path):
    """A file named like a module must not be what is imported."""
    (tmp_path / "json.py").write_text("raise SystemExit('taken')\n")
    (tmp_path / "pytest_kernelllm").mkdir()
    (tmp_path / "pytest_kernelllm" / "__init__.py").write_text("raise SystemExit('taken')\n")
    steps = [step["run"] for step in load_action()["runs"]["steps"] if step["name"] == "Suggest"]
    assert all(" -I -m " in run for run in steps)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "pytest_kernelllm.commands.suggest", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------- without running it


def test_no_expression_stands_in_a_script_and_no_other_action_is_used():
    steps = load_action()["runs"]["steps"]
    assert not any("${{" in step.get("run", "") or "uses" in step for step in steps)


@pytest.mark.parametrize("path", [ROOT / "action.yml", CI, *WORKFLOWS], ids=lambda path: path.name)
def test_zizmor_finds_nothing(path):
    done = subprocess.run(
        [
            Path(sys.executable).parent / "zizmor",
            "--offline",
            "--pedantic",
            "--no-config",
            "--format=json",
            path,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout) == [], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [ROOT / "action.yml", CI, *WORKFLOWS], ids=lambda path: path.name)
def test_the_schema_holds(path):
    schema = "vendor.github-actions" if path.name == "action.yml" else "vendor.github-workflows"
    done = subprocess.run(
        [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", schema, path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_ci_runs_all_checks_on_the_oldest_and_the_newest_python_and_its_own_action_without_a_token():
    jobs = yaml.safe_load(CI.read_text())["jobs"]
    matrix = jobs["checks"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.13"]
    assert {*" ".join(matrix["checks"]).split()} == {"lint", "test", "test-slow", "docs", "catch"}
    assert ".ci/run $CHECKS" in [step.get("run") for step in jobs["checks"]["steps"]]
    [own] = [step for step in jobs["action"]["steps"] if step.get("uses") == "./"]
    assert own["with"]["mode"] == "verify"
    assert own["with"]["working-directory"] == "examples"
    assert own["with"].keys() <= load_action()["inputs"].keys()
    assert all(job["permissions"] == {"contents": "read"} for job in jobs.values())
    assert not re.search(r"\bsecrets\b|github\.token|GITHUB_TOKEN", CI.read_text())


def documented(heading):
    """The names in the first column of the table under a heading of the page."""
    text = (ROOT / "docs" / "reference" / "github-action.md").read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_every_input_and_output_is_documented_and_nothing_else(kind):
    assert documented(kind.capitalize()) == list(load_action()[kind])


def test_every_result_is_documented():
    import typing

    from pytest_kernelllm.suggest.github.flow import Result

    assert documented("Results of suggest") == [*typing.get_args(Result)]


def test_every_example_workflow_is_documented_and_uses_inputs_that_exist():
    page = (ROOT / "docs" / "how-to" / "github-action.md").read_text()
    assert len(WORKFLOWS) >= 6
    for path in WORKFLOWS:
        assert f"examples/workflows/{path.name}" in page
        text = path.read_text()
        for block in re.findall(r"uses: pytest-kernelllm/.*\n +with:\n((?: {10,}.*\n)+)", text):
            names = re.findall(r"^ {10}([\w-]+):", block, re.MULTILINE)
            assert names and set(names) <= load_action()["inputs"].keys()


def test_the_token_comes_from_the_variable_that_the_action_sets():
    env = next(step["env"] for step in load_action()["runs"]["steps"] if step["name"] == "Suggest")
    assert env[command.TOKEN] == "${{ inputs.token }}"


VERIFYING = [path for path in WORKFLOWS if "mode: verify" in path.read_text()]


@pytest.mark.parametrize("path", VERIFYING, ids=lambda path: path.name)
def test_the_store_outlives_a_red_or_cancelled_job_and_is_kept_by_gpu(path):
    steps = yaml.safe_load(path.read_text())["jobs"]["verify"]["steps"]
    by = {step["uses"].partition("@")[0]: step for step in steps if "uses" in step}
    assert "actions/cache" not in by, "which saves after success only"
    restore, save = by["actions/cache/restore"], by["actions/cache/save"]
    assert save["if"] == "always()" and steps.index(save) > steps.index(
        by["pytest-kernelllm/pytest-kernelllm"]
    )
    for each in (restore, save):
        assert "steps.gpu.outputs.model" in each["with"]["key"] and "run_id" not in each["with"]["key"]
    assert "hashFiles('.kernelllm/" in save["with"]["key"], "no new cache where nothing was learned"


@pytest.mark.parametrize("path", VERIFYING, ids=lambda path: path.name)
def test_pull_requests_cancel_what_is_outdated_and_run_for_code_that_is_no_draft(path):
    workflow = yaml.safe_load(path.read_text())
    events = workflow[True]  # YAML's `on`
    if "pull_request" not in events:
        return
    assert "'pull_request'" in workflow["concurrency"]["cancel-in-progress"]
    assert "ready_for_review" in events["pull_request"]["types"]
    assert events["pull_request"]["paths"] == events["push"]["paths"]
    assert "draft" in workflow["jobs"]["verify"]["if"]


def test_the_job_with_the_token_installs_by_hash_and_the_other_with_constraints():
    steps = {step["name"]: step["run"] for step in load_action()["runs"]["steps"]}
    with_token = steps["Install for suggesting"]
    assert "--require-hashes" in with_token and "--no-build-isolation" in with_token
    assert "--constraint" in steps["Install into the project's environment"]
    lock = (ROOT / "requirements-suggest.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==.*?(?:\n    --hash=sha256:[0-9a-f]{64}.*?)+$", lock, re.M)
    assert len(pinned) == len(re.findall(r"^[\w.-]+==", lock, re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["github"]]
    needed += project["build-system"]["requires"]
    assert {re.match(r"[\w.-]+", each)[0].lower() for each in needed} <= {each.lower() for each in pinned}
