"""Every kernel of the examples is suggested by the hosted job, which has no torch."""

import shutil
from pathlib import Path

import pytest
from hosting import Hosting
from judged import H200, accepted
from repository import git
from without_torch import run_without_torch
from world import pushed

from kernelllm_judge.core.records import CandidateId
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.report.json import build_report, write_report
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.github.pack import pack
from pytest_kernelllm.suggest.suggestions import write_suggestions

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
PROPOSE = """
from pytest_kernelllm.commands.suggest import main

code = main(["propose", "--artifact", sys.argv[1]])
assert not {"torch", "triton", "numpy"} & sys.modules.keys()
sys.exit(code)
"""
LIBRARY_CALLS_ONLY = {"Projection"}
"""Targets for which Inductor writes no kernel."""


def written(root: Path, target) -> Outcome:
    """What Inductor writes for a target, as if it had been verified."""
    live = load_target(root, target)
    [(_, completion)] = InductorGenerator().generate([Request(target, (0,), lambda: live)])
    try:
        candidate = render(completion, live)
    except RenderError as error:
        return Outcome(target, CandidateId("inductor"), None, None, str(error))
    return Outcome(target, CandidateId("inductor"), candidate, accepted(candidate))


@pytest.mark.parametrize("example", ["llm_blocks", "transformers_layers"])
def test_every_kernel_is_suggested_without_torch(tmp_path, example):
    clone = tmp_path / "clone"
    shutil.copytree(EXAMPLES / example, clone, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    git(clone, "init", "-q", "-b", "main")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "start")
    # Imported where they lie: a process can import only one folder's ``llm_blocks``.
    project = EXAMPLES / example
    outcomes = [written(project, target) for target in scan([project], project).targets]
    names = {outcome.target.name for outcome in outcomes if outcome.candidate is not None}
    assert {outcome.target.name for outcome in outcomes} - names <= LIBRARY_CALLS_ONLY
    store, report, folder = Store(tmp_path / "store"), tmp_path / "report.json", tmp_path / "artifact"
    patches = write_suggestions(store, clone, outcomes)
    assert len(patches) == len(names)
    write_report(report, build_report(H200, outcomes, patches))
    pack(report, folder)
    hosting = Hosting(tmp_path / "hosting")
    try:
        git(clone, "push", "-q", str(hosting.bare), "main")
        done = run_without_torch(PROPOSE, str(folder), **pushed(hosting, tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "left out" not in done.stdout
        changed = hosting.changed_in(hosting.heads()["kernelllm/suggestions/main"])
        assert sum(path.endswith(".py") and "/_triton/" in path for path in changed) == len(names) + 1
    finally:
        hosting.close()
