"""``kernelllm bench`` as people run it: real candidates, judged in Triton's interpreter."""

import json
import os
import signal
import subprocess
from pathlib import Path

import jsonschema
import pytest
from projects import ANSWER, COMMAND, GOOD, LAYERS, PROBLEM, lay_out
from waiting import wait_until

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Completion
from pytest_kernelllm.beside.passk.bench import bench as measure
from pytest_kernelllm.beside.passk.schema import passk_schema
from pytest_kernelllm.beside.passk.table import notes
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.session.session import open_session

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
FILES = ("--generator", "files", "--candidates-dir", "candidates", "--device", "cpu", "--deadline", "8")


def bench(path, *arguments, **changes):
    command = [*COMMAND, "bench", *arguments, *FILES]
    return subprocess.run(command, cwd=path, capture_output=True, text=True, check=False, **changes)


def store(path):
    """Every entry of the store about targets, with the time it was written."""
    files = (path / ".kernelllm" / "targets").rglob("*")
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files if file.is_file()}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One benchmark over five candidates: right, wrong, crashing, hanging, and leaving with status 0."""
    path = tmp_path_factory.mktemp("bench")
    lay_out(path)
    return path, bench(path, ".", "-k", "5", "--at", "2,1,5", "--json", "out/passk.json")


def test_pass_at_k_is_exact(measured):
    path, done = measured
    assert done.returncode == 0, done.stderr
    report = json.loads((path / "out" / "passk.json").read_text())
    jsonschema.validate(report, passk_schema())
    [only] = report["targets"]
    assert [(p["k"], p["value"]) for p in only["score"]["pass_at"]] == [(1, 0.2), (2, 0.4), (5, 1.0)]
    assert report["total"] == only["score"]
    assert (report["generator"], report["samples"], report["timed"]) == ("files", 5, False)


def test_every_completion_ends_as_a_success_or_with_its_stage_and_reason(measured):
    path, done = measured
    samples = json.loads((path / "out" / "passk.json").read_text())["targets"][0]["samples"]
    assert [s["result"] for s in samples] == ["correct", "correctness", "correctness", "run", "static check"]
    assert all(s["reason"] and s["rule"] for s in samples[1:])
    assert "failures: 1 refused by the static check, 1 failed to run, 2 wrong" in done.stdout


def test_the_table_shows_the_figures(measured):
    _, done = measured
    [row] = [line.split() for line in done.stdout.splitlines() if "Scale layers.py" in line]
    assert row == ["Scale", "layers.py", "5", "5", "1", "0.20", "0.40", "1.00"]
    assert "fast" not in done.stdout  # nothing was timed


def test_a_second_run_judges_nothing_and_says_the_same(measured):
    path, first = measured
    before = store(path)
    again = bench(path, ".", "-k", "5", "--at", "1,2,5", "--json", "again.json")
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert store(path) == before
    samples = json.loads((path / "again.json").read_text())["targets"][0]["samples"]
    assert all(s["known"] for s in samples)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ended_half_way_it_goes_on_where_it_was(tmp_path, number):
    lay_out(tmp_path, {"Scale_0.py": GOOD, "Scale_1.py": GOOD.replace("+ 1)", "+ 2)"), "Later_0.py": GOOD})
    waits = "import os\nif os.environ.get('GATE'):\n    open(os.environ['GATE']).read()\n"
    (tmp_path / "later.py").write_text(waits + LAYERS.replace("class Scale", "class Later"))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [*COMMAND, "bench", "layers.py", "later.py", "-k", "2", *FILES]
    ended = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "GATE": str(gate)}, stdout=subprocess.PIPE, text=True
    )
    # The first target is settled, while the second one is being imported.
    verdicts = ".kernelllm/targets/*/verdicts/*.json"
    wait_until(lambda: len([*tmp_path.glob(verdicts)]) == 2, ended)
    ended.send_signal(number)
    printed, _ = ended.communicate()
    if number == signal.SIGTERM:
        assert ended.returncode == 130
        assert "not finished: 1 target; run again to go on" in printed
        assert "Scale layers.py" in printed
    before = store(tmp_path)

    done = bench(tmp_path, "layers.py", "later.py", "-k", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["targets"]
    assert [s["known"] for s in first["samples"]] == [True, True]
    assert [s["known"] for s in second["samples"]] == [False]
    assert before.items() <= store(tmp_path).items()
    # One file was there of the two asked for: pass@2 cannot be told for it, so there is no mean either.
    assert [p["value"] for p in second["score"]["pass_at"]] == [1.0, None]
    assert [p["value"] for p in json.loads(done.stdout)["total"]["pass_at"]] == [0.75, None]


def test_a_folder_in_kernelbenchs_form_is_judged_alike(tmp_path):
    for name, text in {
        "problems/1_one.py": PROBLEM,
        "problems/2_two.py": PROBLEM.replace("+ 1", "+ 2"),
        "problems/3_broken.py": PROBLEM.replace("return [64]", "raise RuntimeError('no width')"),
        "candidates/Model_0.md": f"Here it is:\n```python\n{ANSWER}```\n",
        "candidates/Model_1.md": "I am sorry, I cannot write kernels.",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    done = bench(tmp_path, "problems", "-k", "2", "--json", "passk.json")
    assert done.returncode == 2, done.stderr  # one target could not be built
    report = json.loads((tmp_path / "passk.json").read_text())
    assert [t["score"]["correct"] for t in report["targets"]] == [1, 0]
    assert [p["value"] for p in report["total"]["pass_at"]] == [0.25, 0.5]
    assert report["total"]["failures"] == {"extract": 2, "correctness": 1}
    [left] = report["left_out"]
    assert left["target"] == "problems/3_broken.py::Model"
    assert "no width" in left["reason"]
    assert "not counted: problems/3_broken.py::Model" in done.stdout


def test_an_original_that_fails_where_nothing_expects_it_costs_its_own_verdicts(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD, "Odd_0.py": GOOD, "Exits_0.py": GOOD})
    fails = "import inspect\n        if any(f.filename.endswith('run/original.py') for f in inspect.stack()):"
    odd = LAYERS.replace("class Scale", "class Odd").replace(
        "return x *", f"{fails}\n            raise RuntimeError('of all moments')\n        return x *"
    )
    (tmp_path / "odd.py").write_text(odd)
    (tmp_path / "exits.py").write_text(
        LAYERS.replace("class Scale", "class Exits").replace(
            "return x *", "raise SystemExit(0)\n        return x *"
        )
    )
    done = bench(tmp_path, "odd.py", "exits.py", "layers.py", "-k", "1", "--json", "-")
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    assert [s["result"] for t in report["targets"] for s in t["samples"]] == ["inconclusive", "correct"]
    reason = report["targets"][0]["samples"][0]["reason"]
    assert reason.startswith("the judge failed: RuntimeError: of all moments")
    assert "forward(x: float32[4, 64]) fails: SystemExit: 0" in report["left_out"][0]["reason"]


def test_an_original_that_ends_its_process_is_left_out(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD})
    (tmp_path / "layers.py").write_text(LAYERS + "\n\nclass Stop(BaseException):\n    pass\n\n\nraise Stop\n")
    done = bench(tmp_path, "layers.py", "-k", "1")
    assert (done.returncode, done.stderr) == (2, "")
    assert "Scale: its process was lost: it exited with status 1: layers.Stop; a fresh one" in done.stdout


def test_a_crash_while_writing_costs_one_target_and_names_its_signal(tmp_path):
    crashes = "import ctypes\n        if torch.compiler.is_exporting():\n            ctypes.string_at(0)\n        return x *"
    (tmp_path / "layers.py").write_text(LAYERS)
    crashing = LAYERS.replace("class Scale", "class Crashing").replace("return x *", crashes)
    (tmp_path / "crashing.py").write_text(crashing)
    command = [*COMMAND, "bench", "crashing.py", "layers.py", "-k", "1", "--generator", "inductor"]
    done = subprocess.run(
        [*command, "--device", "cpu", "--json", "-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    [left] = report["left_out"]
    assert left["target"] == "crashing.py::Crashing"
    assert left["reason"].count("it was killed by SIGSEGV in string_at (__init__.py:") == 2
    assert [sample["result"] for target in report["targets"] for sample in target["samples"]] == ["correct"]


def test_what_needed_translation_is_told_apart(tmp_path):
    (tmp_path / "modules.py").write_bytes((TESTS / "data" / "fusing" / "modules.py").read_bytes())
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "AddReLU_0.txt").write_bytes(
        (TESTS / "data" / "completions" / "dialect_add_relu.txt").read_bytes()
    )
    (folder / "AddReLU_1.txt").write_text("```python\nclass ModelNew:\n    def forward(self,")
    done = bench(tmp_path, "modules.py", "-k", "2", "--json", "passk.json")
    report = json.loads((tmp_path / "passk.json").read_text())
    [only] = [t for t in report["targets"] if t["target"]["name"] == "AddReLU"]
    assert [(p["value"], p["untranslated"]) for p in only["score"]["pass_at"]] == [(0.5, 0.0), (1.0, 0.0)]
    assert only["score"]["failures"] == {"extract": 1}
    assert "1 of 2 completions were translated; without: pass@1 0.00  pass@2 0.00" in done.stdout
    # Targets for which there is no file are named, not counted.
    assert len(report["targets"]) == 1
    assert all("No candidate file" in left["reason"] for left in report["left_out"])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ("layers.py", "-k", "2", "--at", "1,3"),
            2,
            "whole numbers from 1 to the 2 completions drawn, not '3'",
        ),
        (("layers.py", "-k", "2", "--at", "x"), 2, "not 'x'"),
        (("layers.py", "-k", "0"), 2, "`samples` cannot be 0; expected int of at least 1"),
        (("candidates",), 2, "no target in candidates"),
        (("layers.py", "lost.py"), 2, "no file or folder lost.py"),
        (("layers.py", "--generator", "files,inductor"), 2, "not of files and inductor"),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path, arguments, code, sentence):
    lay_out(tmp_path, {})
    command = [*COMMAND, "bench", *FILES, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


class Broken(Generator):
    """A generator whose server is down."""

    name = "broken"

    def identity(self):
        return "broken"

    def generate(self, requests):
        raise GenerateError("The endpoint does not answer.")


class Patchy(Generator):
    """A generator whose server fails the second of three requests."""

    name = "patchy"

    def identity(self):
        return "patchy"

    def generate(self, requests):
        for request in requests:
            for index in request.indices:
                failed = index == 1
                text = "" if failed else "I cannot write kernels."
                note = "The server answered 503." if failed else ""
                yield request, Completion("patchy", index, text, "modelnew", note=note, failed=failed)


@pytest.fixture
def session(tmp_path):
    """A session without a generator, and a target to be handed to it."""
    lay_out(tmp_path, {})
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    with open_session(tmp_path, Settings(samples=3, device="cpu")) as session:
        yield session, target


def test_a_generator_that_cannot_work_ends_the_benchmark_and_leaves_no_target_out(session):
    session, target = session
    session.generators = (Broken(),)  # in place of those that the settings name
    with pytest.raises(SessionError, match=r"The endpoint does not answer\."):
        measure(session, [target], [1])


def test_a_request_that_failed_is_no_completion_and_is_said_so(session):
    session, target = session
    session.generators = (Patchy(),)  # in place of those that the settings name
    found = measure(session, [target], [1, 3])
    assert (found.total.completions, found.total.unanswered) == (2, 1)
    assert [sample.index for sample in found.targets[0].samples] == [0, 2]
    assert [p.value for p in found.total.pass_at] == [0.0, None]
    assert "failed and not counted: 1 request; run again to repeat" in notes(found)


class Halves(Generator):
    """A generator whose server once names its model with half a character, which no file can hold."""

    name = "halves"

    def identity(self):
        return "halves"

    def generate(self, requests):
        for request in requests:
            for index, model in enumerate(("m", "\ud83d", "m")):
                yield request, Completion("halves", index, GOOD, "kernel_module", model=model)


def test_a_completion_that_cannot_be_rendered_costs_no_other(session):
    session, target = session
    session.generators = (Halves(),)  # in place of those that the settings name
    found = measure(session, [target], [1])
    assert [sample.result for sample in found.targets[0].samples] == ["correct", "render", "correct"]
    assert session.context.store.problems == []
