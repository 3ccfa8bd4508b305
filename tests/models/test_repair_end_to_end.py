"""Repair rounds with a model that errs at first and follows verdicts, behind a real ``transformers serve``.

Its answers are judged for real; runs are interrupted, and resumed.
"""

import json
import os
import re
import signal
import subprocess
import sys

import jsonschema
import pytest
from projects import COMMAND
from serving import SECRET, Proxy, transformers_serve
from tiny.chatting import FAULTS, make
from tiny.project import lay_out
from waiting import wait_until

from pytest_kernelllm.beside.passk.schema import passk_schema

pytestmark = pytest.mark.slow

ROUTE = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real ``transformers serve`` behind a proxy that counts requests, and the model's name."""
    folder = tmp_path_factory.mktemp("server") / "errs_and_follows"
    make(folder)
    with transformers_serve(folder, "--dtype", "float32") as address:
        proxy = Proxy(address)
        yield proxy, folder
        proxy.close()


@pytest.fixture
def project(tmp_path):
    """The modules that the model knows."""
    found = lay_out(tmp_path / "project")
    source = (found.path / "layers.py").read_text()
    blocks = source.split("@triton_candidate")
    known = [block for block in blocks[1:] if re.search(r"class (\w+)", block)[1] in FAULTS]
    (found.path / "layers.py").write_text("@triton_candidate".join([blocks[0], *known]))
    return found


def options(served, pytest=False):
    proxy, folder = served
    given = {
        "endpoint": proxy.url,
        "model": folder,
        "device": "cpu",
        "max-new-tokens": 64,
        "temperature": 0.1,
        "protocol": "chat",
    }
    if pytest:
        return [f"--kernelllm-set={name.replace('-', '_')}={value}" for name, value in given.items()]
    return [f"--{name}={value}" for name, value in given.items()]


def bench(served, project, *more):
    return [*COMMAND, "bench", "layers.py", "--generator=endpoint", *options(served), "-k", "2", *more]


def run(command, project, **environ):
    return subprocess.run(
        command, cwd=project.path, capture_output=True, text=True, check=False, env=clean() | environ
    )


def clean():
    return {k: v for k, v in os.environ.items() if "TOKEN" not in k and k != "COLUMNS"} | {
        "OMP_NUM_THREADS": "1"
    }


def conversations(proxy):
    """The length of each conversation that was asked for: 2 the first time, 4 with a verdict."""
    return sorted(len(seen.body["messages"]) for seen in proxy.posts(ROUTE))


def test_repair_beats_drawing_more_and_nothing_is_asked_twice(served, project):
    proxy, _ = served
    proxy.seen.clear()
    report = project.path / "passk.json"
    command = bench(served, project, "--json", str(report))
    done = run(command, project, KERNELLLM_ENDPOINT_TOKEN=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    without = json.loads(report.read_text())
    assert [p["value"] for p in without["total"]["pass_at"]] == pytest.approx([1 / 3, 1 / 3])
    assert without["total"]["rounds"] == []
    asked = conversations(proxy)
    assert asked.count(4) == 0
    right = {t["target"]["name"]: t["score"]["correct"] for t in without["targets"]}
    assert right == {"Affine": 0, "Gate": 2, "RMSNorm": 0}

    # Interrupted while the second repair is being written: what arrived before stays.
    proxy.faults = ["pass", "hang"]
    with subprocess.Popen(
        [*command, "--repair=2"],
        cwd=project.path,
        env=clean(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        wait_until(lambda: conversations(proxy).count(4) >= 2 and kept(project) == 1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=240)
    assert "Traceback" not in said
    before = conversations(proxy).count(4)

    done = run([*command, "--repair=2"], project, KERNELLLM_ENDPOINT_TOKEN=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    found = conversations(proxy)
    assert found.count(2) == asked.count(2), "no first answer was asked for again"
    assert found.count(4) - before == 3, "of four repairs, one was kept"
    assert found.count(6) == 0, "all were right"
    benchmark = json.loads(report.read_text())
    jsonschema.validate(benchmark, passk_schema())
    rounds = benchmark["total"]["rounds"]
    assert [(r["rounds"], r["answers"], r["correct"]) for r in rounds] == [(0, 6, 2), (1, 10, 6), (2, 10, 6)]
    assert [r["pass_at"][0]["value"] for r in rounds] == pytest.approx([1 / 3, 1.0, 1.0])
    instead = [(i["k"], i["answers"], i["value"]) for i in rounds[1]["instead"]]
    assert instead == [(1, pytest.approx(5 / 3), pytest.approx(1 / 3)), (2, pytest.approx(10 / 3), None)]
    assert re.search(
        r"^ *repair rounds +answers +tokens +cost +pass@1 +drawn instead", done.stdout, re.MULTILINE
    )
    assert re.search(r"^ *1 +10 +[\d,]+ +– +1\.00 +0\.33 of 1\.7", done.stdout, re.MULTILINE), done.stdout

    # pytest over the same store asks for nothing.
    requests = len(proxy.posts(ROUTE))
    tested = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--kernelllm-only",
            "--kernelllm-samples=2",
            "--kernelllm-set=repair=2",
            "--kernelllm-generator=endpoint",
            "--kernelllm-report=report.json",
            "-p",
            "no:cacheprovider",
            *options(served, pytest=True),
        ],
        project,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert len(proxy.posts(ROUTE)) == requests
    assert tested.stdout.count("repaired in round 1") == 2
    assert "4 answers sent back with the verdict: 0 right at first, 4 after 4 repairs." in tested.stdout
    assert re.search(r"endpoint: 10 answers, [\d,]+ tokens", tested.stdout), tested.stdout
    for name, candidates in project.report().items():
        for candidate in candidates:
            assert candidate["verdict"]["verdict"] == "accepted"
            sent_back = [r["verdict"]["verdict"] for r in candidate["rounds"]]
            assert sent_back == (["rejected", "accepted"] if FAULTS[name] else [])
    files = [path for path in project.path.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def kept(project):
    """How many repairs are in the store."""
    paths = (project.path / ".kernelllm" / "targets").glob("*/completions/*/[0-9]*.json")
    return sum("was rejected" in path.read_text() for path in paths)
