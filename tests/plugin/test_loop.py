"""What a person sees while kernels are judged, and what a run tells of its processes."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from projects import COMMAND, GOOD, LAYERS, lay_out

from pytest_kernelllm.report.read import read_report

FILES = (
    *("--kernelllm", "--kernelllm-generator=files", "--kernelllm-set=candidates_dir=candidates"),
    *("--kernelllm-device=cpu", "--kernelllm-samples=1", "-p", "no:cacheprovider"),
)
HEAD, SCALE = LAYERS.split("\n\n\n@triton_candidate")
FOREVER = GOOD.replace("    return out", "    while True:\n        pass\n    return out")
OWN = "def test_own(): pass\n"


def lay_out_three(path):
    """Lays out a project with three targets. The first one's candidate takes its deadline."""
    lay_out(path, {"Slow_0.py": FOREVER, "Good_0.py": GOOD, "Last_0.py": f"{GOOD}\n# another\n"})
    classes = (f"\n\n\n@triton_candidate{SCALE.replace('Scale', name)}" for name in ("Slow", "Good", "Last"))
    (path / "layers.py").write_text(HEAD + "".join(classes))
    (path / "test_own.py").write_text(OWN)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """What is run here is no worker of the xdist that may run these tests."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """One run on a terminal, with a report; returns its folder and what the terminal showed, by lines."""
    path = tmp_path_factory.mktemp("watched")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    lay_out_three(path)
    ours, theirs = pty.openpty()
    more = ("--kernelllm-workers=2", "--kernelllm-set=deadline=8", "--kernelllm-report=report.json")
    program = subprocess.Popen(
        [sys.executable, "-m", "pytest", *FILES, *more],
        cwd=path,
        env={**alone, "COLUMNS": "200", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while some := os.read(ours, 65536):
            shown += some
    except OSError:  # it has closed its end
        pass
    finally:
        os.close(ours)
    assert program.wait() == 0, shown.decode()
    return path, [line.strip() for line in re.split(r"[\r\n]+", shown.decode())]


def test_a_line_says_what_is_written_and_judged_from_the_start_on(watched):
    _, lines = watched
    shown = [line for line in lines if "of 3 targets done" in line]
    assert shown[0].startswith("0 of 3 targets done")
    assert any(
        re.match(r"0 of 3 targets done; being (written|judged): .*\b(Good|Slow)\b", line) for line in shown
    )
    assert any(re.match(r"1 of 3 targets done\b.*; being judged: \d \(.*\bSlow\b", line) for line in shown)
    assert not any("left" in line for line in shown if line.startswith("0 of 3"))
    assert lines.index(shown[0]) > next(n for n, line in enumerate(lines) if line.startswith("test_own.py"))


def test_verdicts_and_tests_come_as_they_fall(watched):
    _, lines = watched
    slow, good, last = (
        next(n for n, line in enumerate(lines) if line.startswith(f"{name} files-0: "))
        for name in ("Slow", "Good", "Last")
    )
    assert good < slow and last < slow
    assert lines[good] == "Good files-0: accepted"
    assert lines[slow].startswith("Slow files-0: rejected: ") and "deadline" in lines[slow]
    tests = [line.split()[:2] for line in lines if line.startswith("layers.py ")]
    assert tests == [["layers.py", ".s"], ["layers.py", ".s"], ["layers.py", "xs"]]


def test_the_report_has_what_every_process_did(watched):
    path, _ = watched
    text = (path / "report.json").read_bytes()
    schema = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "report.json").read_text())
    jsonschema.validate(json.loads(text), schema)
    report = read_report(text)
    did = {(span.process, span.what) for span in report.spans}
    for what in ("starting", "being judged", "writing suggestions"):
        assert ("pytest", what) in did
    for process in ("judge 1", "judge 2"):
        for what in ("importing torch", "loading", "rendering", "judging", "starting a worker"):
            assert (process, what) in did
    judged = [span for span in report.spans if span.what == "judging"]
    assert {span.target for span in judged} == {f"layers.py::{name}" for name in ("Slow", "Good", "Last")}
    assert all(span.begin < span.end for span in report.spans)
    assert report.usage.judging == pytest.approx(sum(span.seconds for span in judged), abs=0.01)
    assert not any("spans" in file.read_text() for file in path.glob(".kernelllm/targets/*/verdicts/*.json"))


def test_a_command_draws_it(watched, tmp_path):
    path, _ = watched
    for name, part in (("out/t.html", "<svg"), ("out/t.json", '"traceEvents"')):
        subprocess.run(
            [*COMMAND, "report", str(path / "report.json"), "--timeline", str(tmp_path / name)], check=True
        )
        text = (tmp_path / name).read_text()
        assert part in text and "importing torch" in text and "judge 2" in text


@pytest.fixture(scope="module")
def known(watched, tmp_path_factory):
    """A project whose verdicts are known."""
    return watched[0]


def run(path, *more):
    command = [sys.executable, "-m", "pytest", *FILES, *more]
    return subprocess.run(command, cwd=path, capture_output=True, text=True, check=False)


def test_what_is_known_is_tested_in_its_order_without_a_line(known):
    out = run(known, "-v").stdout
    tests = re.findall(r"^(\S+::\S+) [PSX]", out, re.M)
    names = [
        f"layers.py::{name}::{kind}[files-0]"
        for name in ("Slow", "Good", "Last")
        for kind in ("correctness", "speedup")
    ]
    assert tests == ["test_own.py::test_own", *names], out
    assert "targets done" not in out and "Good files-0: " not in out


def test_it_stops_where_pytest_stops(known):
    (known / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_runtest_makereport(item, call):\n"
        "    report = yield\n"
        "    if 'Good::correctness' in item.nodeid and call.when == 'call':\n"
        "        report.outcome = 'failed'\n"
        "    return report\n"
    )
    try:
        done = run(known, "-x")
    finally:
        (known / "conftest.py").unlink()
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout, done.stdout
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in done.stdout, done.stdout


def test_a_report_of_an_earlier_version_has_no_timeline(known, tmp_path):
    report = json.loads((known / "report.json").read_text())
    del report["spans"]
    (tmp_path / "old.json").write_text(json.dumps(report))
    for arguments, said in (
        (["old.json", "--timeline", "t.html"], "does not say what its run did"),
        (["old.json"], "Name what to write"),
    ):
        done = subprocess.run(
            [*COMMAND, "report", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_log_gets_lines_and_workers_of_xdist_report_their_processes(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD})
    (tmp_path / "conftest.py").write_text("from pytest_kernelllm.plugin import loop\nloop.LOGGED = 0.0\n")
    out = run(tmp_path, "--kernelllm-report=report.json").stdout
    assert re.search(r"^0 of 1 target done; being judged: 1 \(Scale\)$", out, re.M), out
    assert re.search(r"^Scale files-0: accepted$", out, re.M)
    (tmp_path / "conftest.py").unlink()
    for file in tmp_path.glob(".kernelllm/targets/*/verdicts/*.json"):
        file.unlink()
    assert run(tmp_path, "-n1", "--kernelllm-report=report.json").returncode == 0
    report = read_report((tmp_path / "report.json").read_bytes())
    did = {(span.process, span.what) for span in report.spans}
    assert {("pytest", "starting"), ("gw0 pytest", "starting"), ("gw0 judge 1", "judging")} <= did
    assert report.usage is not None


def test_quiet_runs_show_neither(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD})
    (tmp_path / "conftest.py").write_text("from pytest_kernelllm.plugin import loop\nloop.LOGGED = 0.0\n")
    out = run(tmp_path, "-q").stdout
    assert "target done" not in out and "Scale files-0: " not in out and "1 passed, 1 skipped" in out
