"""``kernelllm doctor``: what it says of a machine and of adopted classes, and its exit code."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from projects import COMMAND, GOOD, LAYERS
from standing_now import NOW

from kernelllm_judge.core.kernel_module import Provenance, compose, with_figures
from kernelllm_judge.core.records import Candidate, Domain, KernelRecord, TensorSpec, Verdict
from kernelllm_judge.environment import find_environment
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.store import Store

pytestmark = pytest.mark.slow

DOMAIN = Domain(
    {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
)
ADOPTED = LAYERS.replace("dims=", 'kernel="_triton.scale", dims=')
HERE = find_environment("cpu")


def doctor(path, interpret=True, **variables):
    """Exit code and standard output; asserts that no traceback was shown."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KERNELLLM_", "TRITON_"))}
    environ |= {"CUDA_VISIBLE_DEVICES": ""} | variables
    if interpret:
        environ |= {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [*COMMAND, "doctor"], cwd=path, env=environ, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    """A project with one adopted class, whose kernel was verified here."""
    (tmp_path / "layers.py").write_text(ADOPTED)
    (target,) = scan_file(tmp_path / "layers.py", tmp_path).targets
    body = GOOD.split("import triton.language as tl")[1]
    source = compose(Provenance(target.id, target.source_hash, "files"), "Scale.", [DOMAIN], body)
    (tmp_path / "_triton").mkdir()
    (tmp_path / "_triton" / "scale.py").write_text(with_figures(source, {"verified": "in a test"}))
    candidate = Candidate(target.id, source, "files")
    verdict = Verdict("accepted", "correctness", "", candidate.kernel_hash, HERE, versions=NOW)
    Store(tmp_path).verdicts.add(KernelRecord(target.id, target.source_hash, candidate, verdict, "2026"))
    return tmp_path


def test_it_names_what_the_machine_offers(tmp_path) -> None:
    code, told = doctor(tmp_path, interpret=False)
    assert code == 0
    lines = dict(line.split(":", 1) for line in told.splitlines())
    assert lines["python"].split()[0] == sys.version.split()[0]
    assert lines["architecture"].strip() == "sm_90, tier 1: tests compile for it; run on an H200"
    assert lines["torch"].strip() == HERE.torch and lines["triton"].strip() == HERE.triton
    assert lines["gpu"].startswith("            none, so no adopted kernel runs")
    assert lines["isolation"].split(":")[0].strip() in ("full", "partial")
    assert lines["store"].endswith(".kernelllm: 0 kernels verified in this environment, 0 in all")
    assert "not in the cache" in lines["language model"] or "GPU memory" in lines["language model"]
    assert lines["candidates"].strip().startswith("written by inductor (no endpoint is set")
    assert lines["adopted"].strip() == "0 of 0 marked classes"
    assert not (tmp_path / ".kernelllm").exists(), "it only looks"


def test_it_names_the_endpoint_and_the_switches(tmp_path) -> None:
    _, told = doctor(tmp_path, KERNELLLM_ENDPOINT="http://127.0.0.1:9", KERNELLLM_STRICT="1")
    assert "language model: the endpoint http://127.0.0.1:9\n" in told
    assert "environment:    KERNELLLM_STRICT=1\n" in told


def test_without_targets_it_does_not_import_torch(project) -> None:
    script = (
        "import sys; from pytest_kernelllm.cli import main; main(['doctor']); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_an_adopted_kernel_that_is_as_it_was_verified_runs(project) -> None:
    code, told = doctor(project)
    assert code == 0, told
    assert told.endswith(
        "adopted:        1 of 1 marked classes\n"
        "layers.py::Scale runs _triton.scale inside its domain, verified in this environment\n"
    )


def change_source(project):
    (project / "layers.py").write_text(ADOPTED.replace("+ 1", "+ 1.0"))


def delete_kernel(project):
    (project / "_triton" / "scale.py").unlink()


NOT_RUNNING = {
    "stale": (change_source, {}, "Scale changed since _triton.scale was made; run pytest --kernelllm"),
    "missing": (
        delete_kernel,
        {},
        "Scale names the kernel _triton.scale, which does not exist; apply its patch",
    ),
    "switched off": (lambda project: None, {"KERNELLLM_DISABLE": "1"}, "KERNELLLM_DISABLE is set"),
    "no GPU": (lambda project: None, {"interpret": False}, "there is no GPU here"),
}


@pytest.mark.parametrize("case", NOT_RUNNING)
def test_an_adopted_kernel_that_would_not_run_is_exit_code_1(project, case) -> None:
    change, options, wanted = NOT_RUNNING[case]
    change(project)
    code, told = doctor(project, **options)
    assert code == 1
    assert told.splitlines()[-1].startswith(f"layers.py::Scale runs its original forward: {wanted}")


def test_an_edited_kernel_runs_and_that_is_said(project) -> None:
    kernel = project / "_triton" / "scale.py"
    kernel.write_text(kernel.read_text().replace("+ 1)", "+ 1.0)"))
    code, told = doctor(project)
    assert code == 0
    assert told.endswith("inside its domain, although it was edited since it was verified\n")


def test_a_kernel_that_was_verified_elsewhere_runs_and_that_is_said(project) -> None:
    (record,) = Store(project).verdicts
    (entry,) = project.glob(".kernelllm/targets/*/verdicts/*.json")
    entry.unlink()
    _, told = doctor(project)
    assert told.endswith("inside its domain; the store has no verdict on it\n")
    elsewhere = replace(HERE, device="cuda", gpu="NVIDIA A100", arch="sm_80")
    Store(project).verdicts.add(replace(record, verdict=replace(record.verdict, environment=elsewhere)))
    code, told = doctor(project)
    assert code == 0
    assert told.endswith("although it was verified on NVIDIA A100 (sm_80), not Triton's interpreter\n")
