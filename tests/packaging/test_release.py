"""The workflow that releases: nothing that zizmor or GitHub's schema objects to, and what must be in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
BIN = Path(sys.executable).parent


def test_zizmor_finds_nothing():
    command = [BIN / "zizmor", "--offline", "--pedantic", "--no-config", "--format=json", RELEASE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == [] and done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", RELEASE), ("readthedocs", ROOT / ".readthedocs.yaml")]
)
def test_who_runs_it_can_read_it(schema, file):
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_action_is_pinned_and_only_the_job_that_publishes_gets_an_identity():
    jobs = yaml.safe_load(RELEASE.read_text())["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert not any("run" in step for step in jobs["publish"]["steps"])


def test_a_tag_of_another_version_stops_it(tmp_path):
    steps = yaml.safe_load(RELEASE.read_text())["jobs"]["build"]["steps"]
    [script] = [step["run"] for step in steps if step["name"].startswith("Check that the tag")]
    (tmp_path / "kernelllm_runtime").mkdir()
    (tmp_path / "kernelllm_runtime" / "__init__.py").write_text('"""It."""\n\n__version__ = "1.2.3"\n')
    for tag, code in (("v1.2.3", 0), ("v1.2.4", 1), ("1.2.3", 1)):
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "GITHUB_REF_NAME": tag},
            check=False,
        )
        assert done.returncode == code
