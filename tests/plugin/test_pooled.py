"""``pytest --kernelllm`` judges in processes of its own: what happens to them does not happen to pytest."""

import json
import re
import signal
import subprocess
import sys

import pytest
from projects import GOOD, LAYERS, lay_out
from trees import cmdline, descendants, running
from waiting import wait_until

OPTIONS = (
    "--kernelllm",
    "--kernelllm-device=cpu",
    "--kernelllm-samples=1",
    "-p",
    "no:cacheprovider",
)
FILES = (*OPTIONS, "--kernelllm-generator=files", "--kernelllm-set=candidates_dir=candidates")

HEAD, SCALE = LAYERS.split("\n\n\n@triton_candidate")
SCALE = f"\n\n\n@triton_candidate{SCALE}"


def scale(name, **changes):
    text = SCALE.replace("class Scale", f"class {name}")
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    return text


BODY = "return x * self.weight + 1"
TARGETS = {
    "Begins": {},
    "Segfaults": {"body": (BODY, f"import ctypes; ctypes.string_at(0)\n        {BODY}")},
    "Exits": {"init": ("super().__init__()", "import os; os._exit(1)")},
    "Hangs": {"body": (BODY, f"import threading; threading.Event().wait()\n        {BODY}")},
    "CrashesLater": {
        "body": (BODY, f"import ctypes; x.dtype == torch.float64 and ctypes.string_at(0)\n        {BODY}")
    },
    "Ends": {},
}
"""Targets by name, with what is changed in ``Scale``. The last but one crashes in the judge's float64 run only."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """One run over references that end their processes, by a script that then looks at pytest's own process."""
    path = tmp_path_factory.mktemp("broken")
    lay_out(path, {f"{name}_0.py": GOOD for name in TARGETS})
    (path / "layers.py").write_text(HEAD + "".join(scale(name, **change) for name, change in TARGETS.items()))
    arguments = [*FILES, "-v", "-rs", "--kernelllm-set=reference_deadline=15"]
    script = (
        "import sys, pytest\n"
        f"code = pytest.main({arguments!r})\n"
        "print('torch imported:', 'torch' in sys.modules)\n"
        "sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", script], cwd=path, capture_output=True, text=True, check=False
    )


def test_references_that_end_their_processes_cost_their_own_verdicts(broken):
    out = broken.stdout
    assert broken.returncode == 1, out + broken.stderr
    without_places = re.sub(r"SIGSEGV in \S+ \(\S+:\d+\)", "SIGSEGV", " ".join(out.split()))
    died = "its process was lost"
    for sentence in (
        f"layers.py::Segfaults: {died}: it was killed by SIGSEGV; a fresh one: it was killed by SIGSEGV.",
        f"layers.py::Exits: {died}: it exited with status 1; a fresh one: it exited with status 1.",
        "layers.py::Hangs: running the original took more than 15 s; if it needs longer, "
        "raise `reference_deadline`.",
        "could not be judged: the judging process was lost: it was killed by SIGSEGV; a fresh one: it was "
        "killed by SIGSEGV",
    ):
        assert sentence in without_places
    assert re.search(r"killed by SIGSEGV in \w+ \(\w+\.py:\d+\)", out)
    assert "Traceback" not in out


def test_reports_come_target_by_target_and_the_others_are_judged(broken):
    found = re.findall(r"^layers.py::(\w+)::(\w+)\[files-0\] (\w+)", broken.stdout, re.MULTILINE)
    judged = {"Begins": "PASSED", "Ends": "PASSED", "CrashesLater": "SKIPPED"}
    wanted = []
    for name in dict.fromkeys(name for name, *_ in found):  # as they fall
        wanted.append((name, "correctness", judged.get(name, "FAILED")))
        wanted.append((name, "speedup", "SKIPPED"))  # a mistake fails one test of its target
    assert found == wanted and {name for name, *_ in found} == set(TARGETS)


def test_pytests_own_process_imports_no_torch(broken):
    assert "torch imported: False" in broken.stdout


def test_inductor_too_works_in_the_pool(tmp_path):
    lay_out(tmp_path, {})
    arguments = [*OPTIONS, "--kernelllm-generator=inductor", "-q"]
    script = (
        "import sys, pytest\n"
        f"code = pytest.main({arguments!r})\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout


@pytest.mark.parametrize(("slots", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_an_interrupted_run_says_what_is_kept_writes_its_reports_and_leaves_no_process(
    tmp_path, slots, number
):
    forever = GOOD.replace("    return out", "    while True:\n        pass\n    return out")
    # Those of the second target have been rendered first, and could take both slots.
    begins = {f"Begins_{n}.py": f"{GOOD}\n# {n}\n" for n in range(5)}
    lay_out(tmp_path, {**begins, "Ends_0.py": forever, "Ends_1.py": f"{forever}\n# 1\n"})
    (tmp_path / "layers.py").write_text(HEAD + scale("Begins") + scale("Ends"))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", *FILES, "--kernelllm-samples=5", "-v"),
            *(f"--kernelllm-workers={slots}", "--kernelllm-set=deadline=1000"),
            *("--kernelllm-report=report.json", "--kernelllm-html=page.html"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    store = tmp_path / ".kernelllm"
    wait_until(lambda: list(store.glob("targets/*/verdicts/*.json")), process)
    below = descendants(process.pid)
    assert any(b"forking" in cmdline(pid) for pid in below)
    process.send_signal(number)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 2, out
    assert "KeyboardInterrupt" in out and "Exception in thread" not in out
    said = re.search(
        r"^Interrupted: (\d+) verdicts? kept in \.kernelllm/; to go on: pytest --kernelllm ", out, re.M
    )
    report = json.loads((tmp_path / "report.json").read_text())
    judged = [c for target in report["targets"] for c in target["candidates"] if c["verdict"]]
    assert said and int(said[1]) == len(judged) >= 1 and report["stopped"] == "interrupted"
    assert "The run was stopped</strong> (interrupted)" in (tmp_path / "page.html").read_text()
    wait_until(lambda: not any(running(pid) for pid in below))
