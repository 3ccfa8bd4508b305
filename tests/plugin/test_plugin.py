"""``pytest --kernelllm`` as its users run it, on a machine without a GPU."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from projects import CANDIDATES, COMMAND, GOOD, LAYERS, lay_out
from waiting import wait_until

from kernelllm_judge.core.kernel_module import Provenance, compose, with_figures
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.standing import policy
from pytest_kernelllm.discover.scan import scan

FILES = (
    "--kernelllm",
    "--kernelllm-generator=files",
    "--kernelllm-set=candidates_dir=candidates",
    "--kernelllm-device=cpu",
)


@pytest.fixture
def project(pytester):
    lay_out(pytester.path)
    return pytester


@pytest.fixture
def known(judged, pytester):
    """A copy of the project whose five candidates were judged: its store knows the verdicts."""
    shutil.copytree(judged[0], pytester.path, dirs_exist_ok=True)
    return pytester


def run(project, *arguments):
    return project.runpytest_subprocess(*arguments)


def collect(project, *arguments):
    """Runs pytest where nothing is imported or judged, so that no interpreter has to start for it."""
    return project.runpytest_inprocess(*arguments)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """One run over five candidates, looked at by several tests."""
    path = tmp_path_factory.mktemp("project")
    lay_out(path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        *FILES,
        "--kernelllm-samples=5",
        "--kernelllm-set=deadline=8",
        "-rxs",
    ]
    report = ["--kernelllm-report=out/report.json", "--kernelllm-html=out/page.html", "--junitxml=junit.xml"]
    report += ["--kernelllm-sarif=out/kernels.sarif", "--kernelllm-benchmark-json=out/benchmark.json"]
    done = subprocess.run([*command, *report], cwd=path, capture_output=True, text=True, check=False)
    return path, done


def test_a_kernel_of_a_file_that_moved_is_offered_under_its_new_name(known):
    (known.path / "src").mkdir()
    (known.path / "layers.py").rename(known.path / "src" / "layers.py")
    done = run(known, *FILES, "src")
    assert "known before" in done.stdout.str()
    assert subprocess.run([*COMMAND, "apply"], cwd=known.path, check=False).returncode == 0
    header = (known.path / "src" / "_triton" / "scale.py").read_text()
    assert header.startswith("# Triton kernel for src/layers.py::Scale\n")
    assert "layers.py::Scale" not in header.replace("src/layers.py::Scale", "")
    run(known, *FILES, "src").assert_outcomes(passed=1, skipped=1)


def test_the_options_are_one_screen_of_pytests_own_help(pytester):
    done = pytester.runpytest_inprocess("--help")
    assert done.ret == 0
    text = done.stdout.str().partition("kernelllm: Triton kernels")[2]
    text = text[: re.search(r"^\S", text, re.M).start()]
    assert len(re.findall(r"^  --kernelllm", text, re.M)) == 17
    assert text.count("\n") <= 45


def test_four_bad_candidates_cost_four_verdicts_and_nothing_else(judged):
    _, done = judged
    assert done.returncode == 0, done.stdout
    assert "1 passed, 5 skipped, 4 xfailed" in done.stdout
    for reason in (
        "is wrong at",
        "writes element 10995116",
        "before the deadline",
        "imports os",
    ):
        assert reason in done.stdout
    assert "Scale" in done.stdout
    assert "1/5" in done.stdout


def test_failures_say_how_to_see_them_again(judged):
    _, done = judged
    assert "again: pytest --kernelllm 'layers.py::Scale::correctness[files-1]'" in done.stdout
    assert "seed" in done.stdout


def test_the_patch_applies(judged):
    path, _ = judged
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    subprocess.run(["git", "apply", "--check", ".kernelllm/patches/layers.Scale.patch"], cwd=path, check=True)


def test_the_report_follows_its_published_schema(judged):
    import jsonschema

    path, _ = judged
    report = json.loads((path / "out" / "report.json").read_text())
    schema = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "report.json").read_text())
    jsonschema.validate(report, schema)
    [target] = report["targets"]
    assert target["best"] == "files-0"
    assert [c["verdict"]["verdict"] for c in target["candidates"]] == ["accepted"] + ["rejected"] * 4


def test_the_page_shows_sources_and_the_line_that_is_wrong(judged):
    path, _ = judged
    page = (path / "out" / "page.html").read_text()
    assert page.count('class="candidate"') == 5 and page.count('class="code diff"') == 4
    assert "Multiply by a learned weight" in page  # the original
    assert '<span class="l wrong"' in page and "writes element 10995116" in page


def test_the_page_is_the_stored_report(judged, tmp_path):
    path, _ = judged
    command = [*COMMAND, "report", str(path / "out" / "report.json"), "--html", str(tmp_path / "page.html")]
    subprocess.run(command, check=True)
    assert (tmp_path / "page.html").read_bytes() == (path / "out" / "page.html").read_bytes()


def test_a_run_without_targets_and_a_stopped_run_have_a_page(known):
    run(known, *FILES, "-k", "nothing_is_called_so", "--kernelllm-html=page.html")
    assert "No module was tested" in (known.path / "page.html").read_text()
    known.makepyfile(test_own="def test_fails(): assert 0")
    run(known, *FILES, "--kernelllm-samples=5", "-x", "--kernelllm-html=page.html")
    assert (
        "The run was stopped</strong> (stopping after 1 failures)" in (known.path / "page.html").read_text()
    )


def test_a_page_that_cannot_be_written_loses_nothing_else(known):
    known.makeconftest("def pytest_kernelllm_verdict(config, outcome): open('file', 'w').close()")
    result = run(known, *FILES, "--kernelllm-samples=5", "--kernelllm-html=file/page.html")
    result.stdout.fnmatch_lines(["The report was not written: *file*", "*1 passed*"])


def test_without_a_gpu_nothing_was_timed_and_beside_an_accepted_candidate_nothing_is_a_problem(judged):
    path, _ = judged
    assert json.loads((path / "out" / "benchmark.json").read_text())["benchmarks"] == []
    assert json.loads((path / "out" / "kernels.sarif").read_text())["runs"][0]["results"] == []


def test_junit_names_every_item(judged):
    path, _ = judged
    text = (path / "junit.xml").read_text()
    assert 'name="correctness[files-0]"' in text
    assert 'name="speedup[files-4]"' in text
    cases = {case.get("name"): case for case in ElementTree.fromstring(text).iter("testcase")}
    found = [
        {each.get("name"): each.get("value") for each in cases[name].iter("property")}
        for name in ("correctness[files-0]", "correctness[files-1]")
    ]
    assert [each["kernelllm.verdict"] for each in found] == ["accepted", "rejected"]
    assert "kernelllm.rule" not in found[0] and found[1]["kernelllm.rule"] == "values"
    assert "bounds" in found[0]["kernelllm.certificate"] and "kernelllm.speedup" not in found[0]


def test_a_second_run_knows_everything_and_imports_no_torch(judged):
    path, _ = judged
    script = (
        "import sys, pytest\n"
        f"code = pytest.main({[*FILES, '--kernelllm-samples=5', '-q']!r})\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 verdicts, 5 of them known before" in done.stdout


def test_ids_are_those_of_the_design(project):
    result = collect(project, *FILES, "--kernelllm-samples=2", "--collect-only", "-q")
    wanted = [
        f"layers.py::Scale::{kind}[[]files-{i}[]]" for kind in ("correctness", "speedup") for i in (0, 1)
    ]
    result.stdout.fnmatch_lines(wanted)
    assert not (project.path / ".kernelllm").exists()


def test_ids_stay_the_same_whatever_is_asked_for_beside(project):
    project.makeconftest(
        """
        from pytest_kernelllm.generate.protocol import Generator

        class Own(Generator):
            name = "own"
            def identity(self): return "own"
            def generate(self, requests): return iter(())

        def pytest_kernelllm_generators(config): return [Own()]
        """
    )
    for samples in (1, 3):
        result = collect(project, *FILES, f"--kernelllm-samples={samples}", "--collect-only", "-q")
        ids = [line for line in result.outlines if "correctness" in line]
        assert ids == [
            f"layers.py::Scale::correctness[{name}-{i}]" for name in ("files", "own") for i in range(samples)
        ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("files", "Two generators are called `files`"), ("adopted", "cannot be called 'adopted'")],
)
def test_a_generator_needs_a_name_of_its_own(project, name, sentence):
    project.makeconftest(
        f"""
        from pytest_kernelllm.generate.protocol import Generator

        class Own(Generator):
            name = {name!r}

        def pytest_kernelllm_generators(config): return [Own()]
        """
    )
    result = collect(project, *FILES)
    assert result.ret == 4
    assert sentence in result.stderr.str()


def test_selection_runs_only_what_is_selected(known):
    result = run(known, *FILES, "-k", "correctness and files-0", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, deselected=7)
    result.stdout.fnmatch_lines(["*1 verdict, 1 of them known before*"])


def test_the_projects_own_tests_run_too_unless_only(known):
    known.makepyfile(test_own="def test_it(): pass")
    assert run(known, *FILES, "--kernelllm-samples=1").parseoutcomes() == {"passed": 2, "skipped": 1}
    assert run(known, *FILES, "--kernelllm-samples=1", "--kernelllm-only").parseoutcomes() == {
        "passed": 1,
        "skipped": 1,
    }


@pytest.mark.slow
def test_infinite_numbers_reach_report_and_store_also_from_workers(project):
    (project.path / "layers.py").write_text(LAYERS.replace("dims={", "tolerance=float('inf'), dims={"))
    fails_later = GOOD.replace("    return out", "    1 // (x.shape[0] - 1)\n    return out")
    (project.path / "candidates" / "Scale_0.py").write_text(fails_later)
    for known in (0, 1):
        result = run(project, *FILES, "--kernelllm-samples=1", "-n", "1", "--kernelllm-report=report.json")
        result.stdout.fnmatch_lines([f"*1 verdict*, {known} of them known before*", "*1 xfailed*"])
        report = json.loads((project.path / "report.json").read_text(), parse_constant=pytest.fail)
        assert (report["usage"] is None) == bool(known)
        checks = report["targets"][0]["candidates"][0]["verdict"]["checks"]
        assert "inf" in [check["allowed"] for check in checks]
    for entry in project.path.glob(".kernelllm/targets/*/verdicts/*.json"):
        json.loads(entry.read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
@pytest.mark.parametrize(("dist", "together"), [((), True), (("--dist", "load"), False)])
def test_workers_share_judgements_and_keep_a_target_together_unless_asked_otherwise(project, dist, together):
    twice = LAYERS + LAYERS.split("\n\n\n")[-1].replace("class Scale", "class Again")
    (project.path / "layers.py").write_text(twice)
    for number in range(2):
        text = (project.path / "candidates" / f"Scale_{number}.py").read_text()
        (project.path / "candidates" / f"Again_{number}.py").write_text(text)
    project.makeconftest(
        "from pathlib import Path\n"
        "def pytest_runtest_teardown(item):\n"
        "    folders = Path(item.config.rootpath, '.kernelllm', 'targets').glob('*/verdicts')\n"
        "    known = max((len(list(folder.glob('*.json'))) for folder in folders), default=0)\n"
        "    with Path(item.config.rootpath, 'known.txt').open('a') as file:\n"
        "        file.write(f'{known} ')\n"
    )
    result = run(project, *FILES, "--kernelllm-samples=2", "-n", "2", "-v", *dist)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*4 verdicts*", "*2 passed, 4 skipped, 2 xfailed*"])
    if together:  # both candidates are judged for the first item's sake
        assert (project.path / "known.txt").read_text().startswith("2 ")
    lines = [line for line in result.outlines if line.startswith("[gw")]
    workers = {name: {line[:5] for line in lines if f"::{name}::" in line} for name in ("Scale", "Again")}
    assert all(len(each) == 1 for each in workers.values()) == together, lines


def test_strict_fails_a_target_without_a_kernel(known):
    (known.path / "candidates" / "Scale_0.py").unlink()
    result = run(known, *FILES, "--kernelllm-samples=1", "--kernelllm-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*has no verified kernel*", "*files-0: *is wrong at*"])


def test_a_target_without_files_is_skipped_with_the_reason(project):
    for path in (project.path / "candidates").iterdir():
        path.unlink()
    result = run(project, *FILES, "-rs")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["SKIPPED*layers.py:12: Scale: *No candidate file Scale.py*"])


@pytest.mark.parametrize("more", [(), ("-n1",)])
def test_dimensions_that_inputs_ignore_are_named(project, more):
    layers = project.path / "layers.py"
    layers.write_text(
        LAYERS.replace("def rows(n=6)", "def rows(n=6, m=8)").replace('dims={"n"', 'dims={"m": (1, 9), "n"')
    )
    result = run(project, *FILES, "--kernelllm-samples=1", *more)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*layers.py*Scale*: dims names 'm', but no tensor of inputs has that size on an axis*"]
    )
    result.stdout.no_fnmatch_line("*dims names 'n'*")


HINTS = {
    "no marker": ({"layers.py": "x = 1\n"}, "No target was found: mark an nn.Module"),
    "a function": (
        {
            "layers.py": "from pytest_kernelllm import triton_candidate\n@triton_candidate\ndef scale(x): ...\n"
        },
        "layers.py:3: scale is a function, and triton_candidate marks classes",
    ),
}


@pytest.mark.parametrize("case", HINTS)
def test_a_project_without_targets_gets_a_hint(pytester, case):
    files, hint = HINTS[case]
    for name, text in files.items():
        (pytester.path / name).parent.mkdir(exist_ok=True)
        (pytester.path / name).write_text(text)
    for option in ("--kernelllm", "--kernelllm-only"):
        result = collect(pytester, option, "--kernelllm-device=cpu")
        assert result.ret == 5  # pytest's own code for a run without tests
        assert hint in " ".join(result.stdout.str().split())
    done = subprocess.run([*COMMAND, "scan"], cwd=pytester.path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert {"no marker": "no @triton_candidate in ."}.get(case, hint) in done.stderr


def test_no_patch_without_a_time_on_request(known):
    result = run(known, *FILES, "--kernelllm-samples=1", "--kernelllm-require-timing")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*Scale*1/1*verified, speed unknown*"])
    assert not list((known.path / ".kernelllm").glob("patches/*.patch"))
    run(known, *FILES, "--kernelllm-samples=1").stdout.fnmatch_lines(
        ["*Scale*1/1*patch, speed unknown*", "*proven, not timed: a GPU*--kernelllm-require-timing*"]
    )


def test_a_patch_that_cannot_be_written_is_not_promised(known):
    shutil.rmtree(known.path / ".kernelllm" / "patches")
    (known.path / ".kernelllm" / "patches").write_text("in the way")
    result = run(known, *FILES, "--kernelllm-samples=1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*Scale*1/1*verified, speed unknown*", "*patches: cannot be written*"])
    result.stdout.no_fnmatch_line("*git apply*")


MISTAKES = {
    "no_inputs": (LAYERS.replace("inputs=rows, ", ""), "has no inputs"),
    "not_built": (LAYERS.replace("init=(64,), ", ""), "width"),
    "forward_fails": (LAYERS.replace("x * self.weight", "x @ self.nothing"), "nothing"),
    "not_imported": ("import nowhere\n" + LAYERS, "nowhere"),
}
"""Files with one target each, and a part of the sentence that says what is wrong with it."""


def test_bad_targets_give_one_sentence_and_no_traceback(project):
    (project.path / "layers.py").unlink()
    for name, (source, _) in MISTAKES.items():
        (project.path / f"{name}.py").write_text(source)
    result = run(project, *FILES, "--kernelllm-samples=2", "-rs")
    assert result.ret == 1
    text = result.stdout.str()
    # One mistake fails one test; the others say which.
    result.assert_outcomes(failed=len(MISTAKES), skipped=3 * len(MISTAKES))
    assert "Scale: not tried, for the reason that correctness[files-0] failed" in text
    for name, (_, part) in MISTAKES.items():
        assert re.search(rf"^{name}\.py\b.*{part}.*\.$", text, re.MULTILINE), text
    assert "Traceback" not in text
    assert "pytest_kernelllm/" not in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kernelllm-generator=magic",), "There is no generator `magic`"),
        (("--kernelllm-generator=files", "--kernelllm-set=candidates_dir=gone"), "no folder"),
        (("--kernelllm-set=arch=sm_99",), "`arch` cannot be 'sm_99'; expected one of sm_75, "),
        (("--kernelllm-set=arch=hopper",), "`arch` cannot be 'hopper'"),
        (("--kernelllm-set=sample=3",), "has no setting `sample`; did you mean `samples`?"),
        (("--kernelllm-report=candidates",), "candidates is a folder; name a file"),
        (("--kernelllm-html=layers.py/page.html",), "layers.py/page.html cannot be written"),
    ],
)
def test_wrong_options_are_usage_errors(project, arguments, sentence):
    result = collect(project, "--kernelllm", *arguments)
    assert result.ret == 4
    assert sentence in result.stderr.str()


def test_a_wrong_key_in_pyproject_is_a_usage_error(project):
    (project.path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n[tool.kernelllm]\nsample = 3\n")
    result = collect(project, "--kernelllm")
    assert result.ret == 4
    assert "no setting `sample`" in result.stderr.str()


def test_a_conftest_may_add_inputs_tolerances_generators_and_reactions(project):
    (project.path / "layers.py").write_text(LAYERS.replace("inputs=rows, ", ""))
    (project.path / "candidates" / "Scale_1.py").write_text(GOOD.replace("+ 1)", "+ 1.01)"))
    project.makeconftest(
        """
        import torch
        from pytest_kernelllm.generate.protocol import Generator
        from kernelllm_judge.core.records import Completion

        class Own(Generator):
            name = "own"
            def identity(self): return "own"
            def generate(self, requests):
                for request in requests:
                    text = open("candidates/Scale_1.py").read()
                    yield request, Completion("own", request.indices[0], text, "kernel_module")

        def rows(n=6):
            return torch.randn(n, 64)

        def pytest_kernelllm_generators(config): return [Own()]
        def pytest_kernelllm_inputs(config, target): return rows
        def pytest_kernelllm_tolerance(config, target): return 0.1
        def pytest_kernelllm_verdict(config, outcome):
            print("REACTED", outcome.id, outcome.verdict.verdict)
        """
    )
    result = run(project, *FILES, "--kernelllm-samples=1", "-s", "-k", "correctness")
    result.assert_outcomes(passed=2, deselected=2)
    result.stdout.fnmatch_lines(["*REACTED own-0 accepted"])


@pytest.mark.slow
def test_adoption_end_to_end(known, monkeypatch):
    """Patch, apply, adopted ids, same hash; then a broken and a stale kernel, each red with its reason and annotated once."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    subprocess.run(["git", "init", "-q"], cwd=known.path, check=True)
    assert run(known, *FILES, "--kernelllm-samples=1").ret == 0
    before = scan_hash(known)
    subprocess.run([*COMMAND, "apply"], cwd=known.path, check=True)
    assert 'kernel="_triton.scale"' in (known.path / "layers.py").read_text()
    assert scan_hash(known) == before
    result = run(known, *FILES, "-v")
    result.stdout.fnmatch_lines(["*correctness[[]adopted[]] PASSED*", "*adopted*"])
    assert result.ret == 0

    kernel = known.path / "_triton" / "scale.py"
    verified = kernel.read_text()
    ruff = [sys.executable, "-m", "ruff", "format", "-q", "--line-length=60", str(kernel)]
    subprocess.run(ruff, check=True)
    assert kernel.read_text() != verified
    result = run(known, *FILES)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 verdict, 1 of them known before*"])

    kernel.write_text(verified.replace("+ 1)", "+ 2)"))
    result = run(known, *FILES, "--kernelllm-samples=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*is wrong at*", "*kernel: _triton.scale*", "*layers.py*"])
    assert annotated(result) == ["::error file=layers.py,line=12,title=kernelllm%3A values"]
    result = run(known, *FILES, "--kernelllm-samples=1", "-n2", "--kernelllm-sarif=out/kernels.sarif")
    assert annotated(result) == ["::error file=layers.py,line=12,title=kernelllm%3A values"]
    [found] = json.loads((known.path / "out" / "kernels.sarif").read_text())["runs"][0]["results"]
    assert (found["level"], found["ruleId"]) == ("error", "values")
    result = run(known, *FILES, "--kernelllm-samples=1", "--kernelllm-set=annotations=no")
    assert annotated(result) == []

    kernel.write_text(verified.replace('"grad": False', '"grad": True'))
    result = run(known, *FILES, "--kernelllm-samples=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*domain 1 of its SUPPORTS lies within none*made for grad=True*"])

    kernel.write_text(verified)
    layers = known.path / "layers.py"
    layers.write_text(layers.read_text().replace("self.weight + 1", "self.weight + 1 + 0"))
    result = run(known, *FILES, "--kernelllm-samples=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*the kernel is stale*", "*Scale*adopted kernel is stale: the module changed*"]
    )
    assert "::warning file=layers.py,line=12,title=kernelllm%3A stale" in annotated(result)


def annotated(result):
    """The errors and warnings that a run annotates, and where."""
    marked = (line for line in result.outlines if line.startswith(("::error", "::warning")))
    return ["::".join(line.split("::")[:2]) for line in marked]


def scan_hash(project):
    done = subprocess.run(
        [*COMMAND, "scan", "--json", "layers.py"],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["source_hash"]


@pytest.mark.slow
def test_what_was_finished_before_a_kill_is_kept_and_believed(project):
    """kill -9 as soon as one of two candidates is accepted, whichever is judged first; the rerun judges the other one."""
    slow = GOOD.replace("    return out", "    for _ in range(10**12):\n        pass\n    return out")
    (project.path / "candidates" / "Scale_1.py").write_text(slow)
    settings = ["--kernelllm-samples=2", "--kernelllm-workers=1", "--kernelllm-set=deadline=8"]
    command = [sys.executable, "-m", "pytest", *FILES, "-q", *settings]
    process = subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL, start_new_session=True)
    verdicts = project.path / ".kernelllm" / "targets"
    wait_until(
        lambda: any('"accepted"' in path.read_text() for path in verdicts.glob("*/verdicts/*.json")), process
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (project.path / "candidates" / "Scale_1.py").write_text(CANDIDATES["Scale_1.py"])
    result = run(project, *FILES, "--kernelllm-samples=2", "-rx")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*2 verdicts, 1 of them known before*"])


def test_unused_the_plugin_writes_nothing_and_imports_little(pytester):
    pytester.makepyfile(
        test_it="""
        import sys
        def test_it():
            heavy = {"torch", "triton", "libcst", "rich", "filelock", "pytest_kernelllm.plugin.items"}
            assert not heavy & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert not (pytester.path / ".kernelllm").exists()


REFUSED = {
    "breaks a rule of what a kernel may do": (
        GOOD.replace("    return out", "    return x * self.weight + 1"),
        "policy 31",
        "adopted",
    ),
    "does so by the rules of its own day": (
        GOOD.replace("    return out", "    return x * self.weight + 1"),
        f"policy {policy()}",
        "failed",
    ),
    "is wrong": (GOOD.replace("+ 1)", "+ 2)"), "policy 31", "failed"),
}


@pytest.mark.parametrize(("kernel", "verified", "becomes"), REFUSED.values(), ids=REFUSED)
def test_an_adopted_kernel_that_newer_rules_refuse_is_warned_of_unless_it_is_wrong(
    pytester, kernel, verified, becomes
):
    path = pytester.path
    lay_out(path, {})
    (target,) = scan([path / "layers.py"], path).targets
    domain = Domain(
        {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
    )
    provenance = Provenance(target.id, target.source_hash, "files")
    source = compose(provenance, "Scale.", [domain], kernel[kernel.index("@triton.jit") :])
    figures = {"verified": f"in Triton's interpreter, not timed; torch 2.13.0, triton 3.7.1, {verified}"}
    (path / "_triton").mkdir()
    (path / "_triton" / "scale.py").write_text(with_figures(source, figures))
    edit(path / "layers.py", "dims={", 'kernel="_triton.scale", dims={')
    done = pytester.runpytest_subprocess("--kernelllm", "--kernelllm-only", "--kernelllm-device=cpu")
    text = done.stdout.str()
    if becomes == "failed":
        done.assert_outcomes(failed=1, skipped=1)
        return
    done.assert_outcomes(passed=1, skipped=1, warnings=1)
    assert (
        "layers.py::Scale: _triton.scale is refused, but gives no wrong result: policy 31 accepted it" in text
    )
    again = pytester.runpytest_subprocess(
        "--kernelllm", "--kernelllm-only", "--kernelllm-device=cpu", "--kernelllm-strict"
    )
    again.assert_outcomes(failed=1, skipped=1)


def edit(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
