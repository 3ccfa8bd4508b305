"""A real language model on this machine, through ``pytest --kernelllm``: from prompt to patch, on a CPU.

The model is a tiny one that knows the answers to five prompts by heart, some of them wrong (``tests/tiny``).
"""

import json
import re
import shutil
import subprocess

import pytest
from tiny.lessons import MODEL, TAUGHT, lessons, why_not_taught
from tiny.project import OPTIONS, lay_out

pytestmark = pytest.mark.slow

LOCAL = ("--kernelllm-generator=local", f"--kernelllm-set=model={MODEL}")
DRAWN = ("Affine", "Gate", "RMSNorm")
"""Targets for which a right and a wrong answer are drawn; Softmax is always wrong, AddReLU always right."""


@pytest.fixture(scope="module", autouse=True)
def taught():
    """The texts that the model knows, by target."""
    if why_not := why_not_taught():
        pytest.fail(why_not)
    return {lesson.target: [answer.text.strip() for answer in lesson.answers] for lesson in lessons()}


@pytest.fixture(scope="module")
def judged(taught, tmp_path_factory):
    """One run with six samples of each target, looked at by several tests."""
    project = lay_out(tmp_path_factory.mktemp("local"))
    return project, project.run(*LOCAL, "--kernelllm-samples=6", "-rx")


def test_sampling_ends_with_verified_kernels_and_real_rejections(judged):
    project, done = judged
    assert done.returncode == 0, done.stdout + done.stderr
    accepted = {
        name: [v for v, _ in verdicts].count("accepted") for name, verdicts in project.verdicts().items()
    }
    assert accepted["AddReLU"] == 6
    assert accepted["Softmax"] == 0
    assert all(0 < accepted[name] < 6 for name in DRAWN), accepted
    for name, count in accepted.items():
        assert re.search(rf"{name} +{count}/6", done.stdout)


def test_rejections_name_the_fault(judged):
    project, done = judged
    rules = {
        name: {rule for verdict, rule in found if verdict == "rejected"}
        for name, found in project.verdicts().items()
    }
    assert rules == {
        "Affine": {"values"},
        "Gate": {"memory"},
        "RMSNorm": {"values"},
        "Softmax": {"values"},
        "AddReLU": set(),
    }
    assert "is wrong at" in done.stdout
    assert "of `gate_kernel` writes element 132 of `out_ptr`" in done.stdout


def test_what_was_written_is_summed_up(judged):
    _, done = judged
    assert re.search(r"^local: 30 answers, [\d,]+ tokens\.$", done.stdout, re.MULTILINE)


def test_what_the_model_says_is_kept_with_its_prompt(judged, taught):
    project, _ = judged
    found = project.completions()
    for name, texts in found.items():
        assert sorted(texts) == list(range(6))
        assert set(texts.values()) <= set(taught[name])
    [path, *_] = project.path.glob(".kernelllm/targets/*/completions/*/0000.json")
    kept = json.loads(path.read_text())["body"]
    assert kept["prompt"] in [lesson.prompt for lesson in lessons()]
    assert kept["model"] == "tiny_kernelllm"
    assert kept["revision"]
    assert kept["tokens"] > 100


def test_each_verified_kernel_has_a_patch_that_applies(judged):
    project, done = judged
    assert "4 patches in" in done.stdout
    patches = project.path / ".kernelllm" / "patches"
    assert {f"layers.{name}.patch" for name in (*DRAWN, "AddReLU")} <= {
        path.name for path in patches.iterdir()
    }
    assert not (patches / "layers.Softmax.patch").exists()
    subprocess.run(["git", "init", "-q"], cwd=project.path, check=True)
    for patch in patches.iterdir():
        subprocess.run(["git", "apply", "--check", patch], cwd=project.path, check=True)


def test_a_second_run_asks_nobody_and_imports_no_torch(judged, tmp_path):
    project = judged[0].copy(tmp_path / "again")
    arguments = [*OPTIONS, *LOCAL, "--kernelllm-samples=6"]
    script = (
        "import sys, pytest\n"
        f"code = pytest.main({arguments!r})\n"
        "heavy = {'torch', 'transformers', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    done = project.python("-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 verdicts, 30 of them known before" in done.stdout


def test_ten_after_six_writes_four_more(judged, tmp_path):
    project = judged[0].copy(tmp_path / "more")
    before = _written_at(project)
    done = project.run(*LOCAL, "--kernelllm-samples=10", "-k", "Gate and correctness")
    assert done.returncode == 0, done.stdout + done.stderr
    after = _written_at(project)
    assert before.items() <= after.items()
    assert sorted(path.name for path in after.keys() - before.keys()) == [
        f"000{i}.json" for i in (6, 7, 8, 9)
    ]
    assert len(project.completions()["Gate"]) == 10


def _written_at(project):
    """When each completion was written, in nanoseconds."""
    kept = project.path.glob(".kernelllm/targets/*/completions/*/[0-9]*.json")
    return {path.relative_to(project.path): path.stat().st_mtime_ns for path in kept}


def test_a_seed_repeats_and_another_seed_draws_others(judged, tmp_path):
    """Alone in the batch, in another run, with an empty store: a sample is the same as ever."""
    project = lay_out(tmp_path)
    script = (
        "from pathlib import Path\n"
        "from pytest_kernelllm.config.settings import Settings\n"
        "from pytest_kernelllm.discover.scan import scan_file\n"
        "from pytest_kernelllm.session.session import open_session\n"
        "here = Path.cwd()\n"
        "for seed in (0, 1):\n"
        f"    model = dict(generator='local', model={str(MODEL)!r}, samples=6, max_new_tokens=640)\n"
        "    settings = Settings(device='cpu', seed=seed, store=f'seed{seed}', **model)\n"
        "    with open_session(here, settings) as session:\n"
        "        list(session.drafts(scan_file(here / 'layers.py', here).targets[0]))\n"
    )
    done = project.python("-c", script)
    assert done.returncode == 0, done.stderr
    same, other = (project.completions(f"seed{seed}")["Affine"] for seed in (0, 1))
    assert same == judged[0].completions()["Affine"]
    assert other.keys() == same.keys()
    assert other != same


def test_workers_of_xdist_share_one_generation(tmp_path):
    """Each worker has its own model, and every prompt is asked by one of them only."""
    project = lay_out(tmp_path)
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "def pytest_kernelllm_prompt(target, code, prompt):\n"
        "    with Path('asked.txt').open('a') as file:\n"
        "        file.write(target.name + '\\n')\n"
    )
    chosen = ("-k", "(Affine or Softmax) and correctness")
    done = project.run(*LOCAL, "--kernelllm-samples=2", "-n2", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 verdicts" in done.stdout
    assert sorted((tmp_path / "asked.txt").read_text().split()) == ["Affine", "Softmax"]
    assert {name: sorted(texts) for name, texts in project.completions().items()} == {
        "Affine": [0, 1],
        "Softmax": [0, 1],
    }


def test_a_hook_that_changes_is_another_prompt(judged, tmp_path):
    project = judged[0].copy(tmp_path / "hooked")
    hook = "def pytest_kernelllm_prompt(target, code, prompt):\n    return prompt + {0!r}\n"
    for addition in ("", " "):
        (project.path / "conftest.py").write_text(hook.format(addition))
        done = project.run(*LOCAL, "--kernelllm-samples=1", "-k", "Gate and correctness[local-0]")
        assert done.returncode == 0, done.stdout + done.stderr
    folders = list(project.path.glob(".kernelllm/targets/*/completions/*"))
    prompts = [json.loads((each / "0000.json").read_text())["body"].get("prompt") for each in folders]
    (plain,) = (lesson.prompt for lesson in lessons() if lesson.target == "Gate")
    assert (prompts.count(plain), prompts.count(plain + " ")) == (2, 1)


def test_a_prompt_beyond_the_context_is_skipped_and_says_by_how_much(tmp_path):
    small = tmp_path / "small_context"
    shutil.copytree(MODEL, small)
    config = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1000}))
    project = lay_out(tmp_path / "project")
    chosen = ("--kernelllm-generator=local", f"--kernelllm-set=model={small}", "--kernelllm-samples=2")
    done = project.run(*chosen, "-k", "Gate and correctness", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"the prompt has (\d+) tokens and the answer may have 640, (\d+) more than the 1,000 that small_context reads",
        done.stdout,
    )
    assert found, done.stdout
    assert int(found[1]) + 640 - 1000 == int(found[2])
    assert "2 skipped" in done.stdout


def test_a_model_that_was_taught_another_prompt_says_so(tmp_path):
    taught = json.loads((MODEL / TAUGHT).read_text())
    (tmp_path / TAUGHT).write_text(json.dumps(taught | {"Gate": "another"}))
    assert why_not_taught(tmp_path) == (
        "the test model was trained on another prompt for Gate: run `python -m tests.tiny.train`"
    )
